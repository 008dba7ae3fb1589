"""Reproduces the published comparisons of CPU and GPU: how fast each is, and how much of the time loading takes.

unstall devices --experiment mnist
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from unstall.benchmarks.devices.experiments import EXPERIMENTS
from unstall.benchmarks.devices.fewer_bits import plan as fewer_bits
from unstall.benchmarks.devices.parser import parser
from unstall.benchmarks.devices.plan import read_plan
from unstall.benchmarks.lab.command import Command, exit_code_of, run
from unstall.profiles.text import Terminal

COMMAND = Command(
    parser=parser,
    plan=read_plan,
    lab="benchmarks.devices.measure:open_run",
    kind="benchmarks.devices.report:KIND",
    listing=lambda console: _list(console),
)
INFERENCE = Command(
    parser=fewer_bits.parser,
    plan=fewer_bits.read_plan,
    lab="benchmarks.devices.fewer_bits.measure:open_run",
    kind="benchmarks.devices.fewer_bits.report:KIND",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns 0; 1 where `--check` finds a device that does not compute; 2 for bad input, 3 if nothing could be measured,
    128 + signal if stopped.
    """
    words = sys.argv[1:] if argv is None else argv
    # Its own parser knows the options that go with it.
    if any(word.partition("=")[0] == "--inference" for word in words):
        return run(INFERENCE, argv)
    options = parser()
    if any(word.partition("=")[0] == "--sweep" for word in words):
        options.exit(2, "unstall devices --sweep is gone: unstall pipeline --sweep AXIS=VALUES measures it.\n")
    arguments = options.parse_args(argv)
    if arguments.check:
        if arguments.json:
            options.error("--check prints plain text: leave out --json.")
        from unstall.benchmarks.devices.check import check

        return exit_code_of(lambda: check(Terminal()), Terminal(stderr=True), Path(tempfile.gettempdir()))
    return run(COMMAND, argv)


def _list(console: Console) -> None:
    for name, experiment in EXPERIMENTS.items():
        console.print(Text.assemble("\n", (name, "bold"), f": {experiment.title}"))
        for case in experiment.cases:
            console.print(Text(f"  {case.name}", style="dim"))
        for claim in experiment.claims:
            figure = claim.figure
            console.print(Text(f"  published: {figure.text}, {figure.on}{'; ' * bool(figure.when)}{figure.when}"))


if __name__ == "__main__":
    sys.exit(main())
