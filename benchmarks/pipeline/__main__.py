"""The main job: how much of training is loading and how much compute, for every variant, model and device.

unstall pipeline --data photos/train --model cats-dogs-64 --variants all
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

if "benchmarks" not in str(__package__ or ""):
    sys.exit("Run it as a module, in the folder of the project: python -m benchmarks.pipeline")

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unstall.benchmarks.lab.command import Command, run
from unstall.benchmarks.pipeline.parser import parser
from unstall.benchmarks.pipeline.plan import read_plan
from unstall.benchmarks.pipeline.sweep.plan import read_plan as read_sweep_plan
from unstall.models import MODELS
from unstall.pipeline import VARIANTS
from unstall.pipeline.variants import DEFAULT, other_work
from unstall.profiles.devices import NAMED_RATES

COMMAND = Command(
    parser=parser,
    plan=read_plan,
    lab="benchmarks.pipeline.measure:open_run",
    kind="profiles.report.measurements:KIND",
    listing=lambda console: _list(console),
)
SWEEP = Command(
    parser=parser,
    plan=read_sweep_plan,
    lab="benchmarks.pipeline.sweep.measure:open_run",
    kind="benchmarks.pipeline.sweep.report:KIND",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0, or 2 for bad input, 3 if nothing could be measured, 128 + signal if stopped."""
    return run(SWEEP if parser().parse_args(argv).sweep else COMMAND, argv)


def _list(console: Console) -> None:
    table = Table(box=None, title="variants (* in the default set)", title_justify="left", title_style="bold")
    for column in ("name", "loader", "differs from full decode, bilinear, augmented"):
        table.add_column(column)
    for name, config in VARIANTS.items():
        table.add_row(name + (" *" if name in DEFAULT else ""), config.loader, ", ".join(other_work(config)) or "-")
    console.print(table)
    table = Table(box=None, title="\nmodels", title_justify="left", title_style="bold")
    for column in ("name", "image", "published in"):
        table.add_column(column)
    for name, network in MODELS.items():
        if hasattr(network, "image_size"):
            table.add_row(name, "x".join(map(str, network.image_size)), network.source)
    console.print(table)
    others = ", ".join(name for name, network in MODELS.items() if not hasattr(network, "image_size"))
    console.print(f"for unstall devices, since they take no colour images: {others}")
    rates = ", ".join(f"emulated:{name}" for name in NAMED_RATES)
    console.print(Text.assemble("\n", ("devices", "bold"), f"\ncpu, gpu, emulated:RATE (images/sec), {rates}"))


if __name__ == "__main__":
    sys.exit(main())
