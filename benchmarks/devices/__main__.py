"""The published comparisons of CPU and GPU, reproduced: who is how fast, and how much of it loading takes.

python -m benchmarks.devices --experiment mnist
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from benchmarks.devices.check import check
from benchmarks.devices.experiments import EXPERIMENTS
from benchmarks.devices.plan import Request, parser, read_request
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
from profiles.text import Terminal, print_files


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns 0; 1 where `--check` finds a device that does not compute; 2 for bad input, 3 if nothing could be measured,
    128 + signal if stopped.
    """
    arguments = parser().parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    if arguments.list:
        _list(console)
        return 0
    if arguments.check:
        return exit_code_of(lambda: check(console), errors, Path(tempfile.gettempdir()))
    out = arguments.out or new_folder()
    return exit_code_of(lambda: _run(read_request(arguments, out), console, errors), errors, out)


def _list(console: Console) -> None:
    for name, experiment in EXPERIMENTS.items():
        console.print(f"\n[bold]{name}[/]: {experiment.title}", highlight=False)
        for case in experiment.cases:
            console.print(Text(f"  {case.name}", style="dim"))
        for claim in experiment.claims:
            figure = claim.figure
            console.print(Text(f"  published: {figure.text}, {figure.on}{'; ' * bool(figure.when)}{figure.when}"))


def _run(request: Request, console: Console, errors: Console) -> int:
    try:
        check_out(request.out, "results.json", "report.html")
        return _measure(request, console, errors)
    finally:
        remove_if_empty(request.out)


def _measure(request: Request, console: Console, errors: Console) -> int:
    from benchmarks.devices.measure import Run
    from benchmarks.devices.report import Outcome

    with progress_bar(errors) as progress:
        takes_photos = any(case.config is not None for case in request.cases)
        source = read_source(request.data, progress, errors, skip_list=request.skip_list) if takes_photos else None
        devices = [*devices_here(), *([] if request.emulated is None else [request.emulated])]
        run = Run(request, source, devices, progress, errors)
        outcome = Outcome(request, source, run)
        try:
            run.measure()
            written = outcome.write(complete=True)
            run.close()
        except BaseException as error:
            run.kill()
            progress.stop()
            if not isinstance(error, UserError):
                kept = outcome.write(complete=False)
                said = f"what was measured so far is in {request.out}" if kept else "nothing measured"
                errors.print(f"stopped: {said}", highlight=False, markup=False, soft_wrap=True)
            raise
    if not written:
        reasons = "; ".join(dict.fromkeys(f"{one.who}: {one.reason}" for one in run.left_out))
        raise UserError(f"nothing could be measured. {reasons}", exit_code=3)
    outcome.print(console)
    print_files(console, "results and report", request.out / "results.json", request.out / "report.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
