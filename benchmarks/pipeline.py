"""The main job: how much of training is loading and how much compute, for every variant, model and device.

python -m benchmarks.pipeline --data photos/train --model cats-dogs-64 --variants all
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

if importlib.util.find_spec("pipeline") is None or "benchmarks" not in str(__package__ or ""):
    sys.exit("Run it as a module, from the project's folder or installed: python -m benchmarks.pipeline")

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.options import Request, UserError, parser, read_request
from models import MODELS
from pipeline.sources import ImageSource, SourceError, open_source
from pipeline.variants import DEFAULT, VARIANTS, other_work
from profiles.devices import NAMED_RATES, Device


class Stopped(Exception):
    """A signal asked the run to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0, or 2 for bad input, 3 if nothing could be measured, 128 + signal if stopped."""
    arguments = parser().parse_args(argv)
    console = Console()
    errors = Console(stderr=True)
    if arguments.list:
        _list(console)
        return 0
    try:
        request = read_request(arguments, _new_folder())
    except UserError as error:
        return _say(errors, error)
    try:
        return _run(request, console, errors)
    except (UserError, SourceError) as error:
        return _say(errors, error)
    except Stopped as stopped:
        return stopped.exit_code
    except OSError as error:
        errors.print(f"{request.out}: {error.strerror or error}.", style="bold red", markup=False, soft_wrap=True)
        return 3


def _say(errors: Console, error: UserError | SourceError) -> int:
    errors.print(str(error), style="bold red", markup=False, highlight=False, soft_wrap=True)
    return error.exit_code if isinstance(error, UserError) else 2


def _new_folder() -> Path:
    return Path("runs") / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")


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
    for name, model in MODELS.items():
        table.add_row(name, "x".join(map(str, model.image_size)), model.source)
    console.print(table)
    rates = ", ".join(f"emulated:{name}" for name in NAMED_RATES)
    console.print(f"\n[bold]devices[/]\ncpu, gpu, emulated:RATE (images/sec), {rates}", highlight=False)


def _run(request: Request, console: Console, errors: Console) -> int:
    try:
        _check_out(request.out)
        return _measure(request, console, errors)
    finally:
        _remove_if_empty(request.out)


def _measure(request: Request, console: Console, errors: Console) -> int:
    from benchmarks.run import Run

    with _signals(), _progress(errors) as progress:
        source = _open_source(request, progress, errors)
        devices = request.devices or _devices_here()
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
    files = f"{request.out}/results.json, {request.out}/report.html"
    console.print(f"\nresults and report: {files}", highlight=False, markup=False)
    return 0


def _check_out(out: Path) -> None:
    """Finds out before anything is measured that the results can be written.

    Raises:
      UserError: if not.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
        free_bytes = shutil.disk_usage(out).free
    except OSError as error:
        raise UserError(f"--out {out}: results cannot be written there: {error.strerror}.") from error
    if free_bytes < 50e6:
        raise UserError(f"--out {out}: no room on disk, {free_bytes / 1e6:.0f} MB are free and 50 MB are needed.")
    if (out / "results.json").exists():
        raise UserError(f"--out {out} holds the results of an earlier run. Choose another folder, or remove them.")


def _remove_if_empty(out: Path) -> None:
    """Leaves no folder behind for a run that measured nothing."""
    with contextlib.suppress(OSError):
        out.rmdir()


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Turns the first SIGINT, SIGTERM or SIGHUP into `Stopped`; those behind it wait until the run has ended."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, frame: Any) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _progress(console: Console) -> Progress:
    # It redraws only when told to, between windows: a thread that redraws would take a core from what is measured.
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
        disable=not console.is_terminal,
    )


def _open_source(request: Request, progress: Progress, errors: Console) -> ImageSource:
    task = progress.add_task(f"reading {request.data}"[:40], total=None)

    def report(done: int, total: int) -> None:
        progress.update(task, completed=done, total=total, refresh=done % 50 == 0 or done == total)

    source = open_source(request.data, progress=report)
    progress.remove_task(task)
    if source.skipped:
        first = source.skipped[0]
        more = f" and {len(source.skipped) - 1} more" if len(source.skipped) > 1 else ""
        errors.print(
            f"skipped {len(source.skipped)} of {source.images + len(source.skipped)} files: "
            f"{first.path} ({first.reason}){more}; all named in results.json",
            style="yellow",
            markup=False,
            highlight=False,
        )
    return source


def _devices_here() -> tuple[Device, ...]:
    """Returns the CPU, and the GPU beside it where a driver is."""
    devices = [Device(kind="cpu", name="cpu")]
    if any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")):
        devices.append(Device(kind="gpu", name="gpu"))
    return tuple(devices)


if __name__ == "__main__":
    sys.exit(main())
