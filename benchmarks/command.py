"""How a long command begins and ends: where it writes, what it says, its progress, and the signals that stop it."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.options import UserError
from pipeline.sources import ImageSource, SourceError, open_source


class Stopped(Exception):
    """A signal asked the run to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def say(errors: Console, error: UserError | SourceError) -> int:
    errors.print(str(error), style="bold red", markup=False, emoji=False, highlight=False, soft_wrap=True)
    return error.exit_code if isinstance(error, UserError) else 2


def check_out(out: Path, results: str = "results.json") -> None:
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
    if (out / results).exists():
        raise UserError(f"--out {out} holds the results of an earlier run. Choose another folder, or remove them.")


def remove_if_empty(out: Path) -> None:
    """Leaves no folder behind for a run that measured nothing."""
    with contextlib.suppress(OSError):
        out.rmdir()


@contextlib.contextmanager
def signals() -> Iterator[None]:
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


def progress_bar(console: Console) -> Progress:
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


def open_data(data: str, progress: Progress, errors: Console) -> ImageSource:
    """Opens what `--data` names, with progress, and says what was skipped."""
    task = progress.add_task(f"reading {data}"[:40], total=None)

    def report(done: int, total: int) -> None:
        progress.update(task, completed=done, total=total, refresh=done % 50 == 0 or done == total)

    source = open_source(data, progress=report)
    progress.remove_task(task)
    if source.skipped:
        first = source.skipped[0]
        more = f" and {len(source.skipped) - 1} more" if len(source.skipped) > 1 else ""
        errors.print(
            f"skipped {len(source.skipped)} of {source.images + len(source.skipped)} files: "
            f"{first.path} ({first.reason}){more}; all named in the results",
            style="yellow",
            markup=False,
            highlight=False,
        )
    return source
