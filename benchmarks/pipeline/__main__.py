"""The main job: how much of training is loading and how much compute, for every variant, model and device.

python -m benchmarks.pipeline --data photos/train --model cats-dogs-64 --variants all
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

if "benchmarks" not in str(__package__ or ""):
    sys.exit("Run it as a module, from the project's folder or installed: python -m benchmarks.pipeline")

from rich.console import Console

from benchmarks.lab.command import (
    check_out,
    devices_here,
    exit_code_of,
    new_folder,
    progress_bar,
    read_source,
    remove_if_empty,
)
from benchmarks.lab.options import UserError
from benchmarks.pipeline.plan import Request, parser, read_request
from models import MODELS
from pipeline import VARIANTS
from pipeline.variants import DEFAULT, other_work
from profiles.devices import NAMED_RATES
from profiles.text import Terminal, print_files


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0, or 2 for bad input, 3 if nothing could be measured, 128 + signal if stopped."""
    arguments = parser().parse_args(argv)
    console = Terminal()
    errors = Terminal(stderr=True)
    if arguments.list:
        _list(console)
        return 0
    out = arguments.out or new_folder()
    return exit_code_of(lambda: _run(read_request(arguments, out), console, errors), errors, out)


def _list(console: Console) -> None:
    from rich.table import Table

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
    console.print(f"for python -m benchmarks.devices, since they take no colour images: {others}", highlight=False)
    rates = ", ".join(f"emulated:{name}" for name in NAMED_RATES)
    console.print(f"\n[bold]devices[/]\ncpu, gpu, emulated:RATE (images/sec), {rates}", highlight=False)


def _run(request: Request, console: Console, errors: Console) -> int:
    try:
        check_out(request.out, "results.json", "report.html")
        return _measure(request, console, errors)
    finally:
        remove_if_empty(request.out)


def _measure(request: Request, console: Console, errors: Console) -> int:
    from benchmarks.pipeline.measure import Run

    with progress_bar(errors) as progress:
        source = read_source(request.data, progress, errors, skip_list=request.skip_list)
        devices = request.devices or devices_here()
        run = Run(request, source, devices, progress, errors)
        try:
            run.measure()
            run.write(complete=True)
            run.close()
        except BaseException as error:
            run.kill()
            progress.stop()
            if not isinstance(error, UserError):
                kept = (
                    f"what was measured so far is in {request.out}" if run.write(complete=False) else "nothing measured"
                )
                errors.print(f"stopped: {kept}", highlight=False, markup=False, soft_wrap=True)
            raise
    if not run.verdicts:
        reasons = "; ".join(f"{who}: {why}" for who, why in run.left_out())
        raise UserError(f"nothing could be measured. {reasons}", exit_code=3)
    run.print(console)
    print_files(console, "results and report", request.out / "results.json", request.out / "report.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
