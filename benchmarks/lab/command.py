"""The one shape of every command that measures: plan, measure in rounds, write after each, print, end."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import unstall
from benchmarks.lab.options import UserError
from pipeline import ImageSource, SourceError, open_source, read_skip_list
from pipeline.commands import Noise, Stopped, signals
from pipeline.text import printable
from profiles import Device
from profiles.report import REPORT, RESULTS, write, write_results
from profiles.text import Terminal, print_files

_RUNS = Path("runs")


class Plan(Protocol):
    """What was asked: frozen, checked, and with the folder that results go to."""

    @property
    def out(self) -> Path: ...


class Lab(Protocol):
    """What measures a plan, in this process or in children of it."""

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures everything; calls `after_round` whenever there is more to write."""

    def document(self, *, complete: bool) -> Any:
        """Returns the document of what was measured so far."""

    def close(self) -> None:
        """Ends children that have nothing more to do."""

    def kill(self) -> None:
        """Ends children at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that measures.

    Attributes:
      parser: returns the parser of its words.
      plan: makes the plan of the parsed words and the folder for results, and refuses what needs no measurement.
      lab: "module:function" that takes plan, progress and the console for errors, and returns a `Lab`. It is imported
        behind all refusals.
      kind: "module:NAME" of the `Kind` of the command's documents.
      listing: prints what there is to choose from, for `--list`; None where there is no such option.
      exit_code: of a document whose results are there.
      products: names of the files that the command writes beside results and report when it has come to its end. Its
        lab has a method `write_products(console, derived)`, which writes them and returns their paths.
    """

    parser: Callable[[], argparse.ArgumentParser]
    plan: Callable[[argparse.Namespace, Path], Plan]
    lab: str
    kind: str
    listing: Callable[[Console], None] | None = None
    exit_code: Callable[[Any, Any], int] = lambda document, derived: 0
    products: tuple[str, ...] = ()


def run(command: Command, argv: Sequence[str] | None = None) -> int:
    """Runs a command. Returns its exit code; 2 for bad input, 3 if nothing could be measured, 128 + signal."""
    arguments = command.parser().parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    if command.listing is not None and arguments.list:
        command.listing(console)
        return 0
    out = arguments.out or new_folder()
    return exit_code_of(lambda: run_plan(command, command.plan(arguments, out), console, errors), errors, out)


def run_plan(command: Command, plan: Plan, console: Console, errors: Console) -> int:
    """Measures a plan, writes after each round, and prints what follows.

    Raises:
      UserError: if the results cannot be written, or nothing could be measured.
      Stopped: by a signal; what was measured so far is written.
    """
    out = plan.out
    try:
        check_out(out, RESULTS, REPORT, *command.products)
        kind = unstall.of_ours(command.kind)
        with progress_bar(errors) as progress:
            lab = unstall.of_ours(command.lab)(plan, progress, errors)

            def keep(write: Callable[..., None], *, complete: bool) -> tuple[Any, Any]:
                """Writes what was measured so far, if anything was. Returns the document and what follows from it."""
                document = lab.document(complete=complete)
                derived = kind.derive(document)
                if kind.rows(derived):
                    write(out, document, kind, derived)
                return document, derived

            try:
                lab.measure(lambda: keep(write_results, complete=False))
                document, derived = keep(write, complete=True)
                lab.close()
            except BaseException as error:
                lab.kill()
                progress.stop()
                if not isinstance(error, UserError):
                    _, derived = keep(write, complete=False)
                    what = f"what was measured so far is in {out}" if kind.rows(derived) else "nothing measured"
                    errors.print(f"stopped: {what}", highlight=False, markup=False, soft_wrap=True)
                raise
        if not kind.rows(derived):
            reasons = "; ".join(f"{left_out.who}: {left_out.reason}" for left_out in document.left_out)
            raise UserError(f"nothing could be measured. {reasons}", exit_code=3)
        kind.print(console, document, derived)
        print_files(console, "results and report", out / RESULTS, out / REPORT)
        if command.products and (products := lab.write_products(console, derived)):
            print_files(console, "written", *products)
        return command.exit_code(document, derived)
    finally:
        remove_if_empty(out)


def exit_code_of(run: Callable[[], int], errors: Console, out: Path, when_stopped: str = "") -> int:
    """Runs a command's work, stopped by the first signal, and says in one line what ends it.

    Args:
      run: the work. Returns the exit code.
      errors: where it is said.
      out: where the work writes, for what cannot be written.
      when_stopped: said if a signal stops it.
    Returns:
      The work's exit code, or that of what ended it: 2 or 3, and 128 + signal.
    """
    try:
        with signals():
            return run()
    except (UserError, SourceError) as error:
        return say(errors, error)
    except Stopped as stopped:
        if when_stopped:
            errors.print(when_stopped, highlight=False, markup=False, soft_wrap=True)
        return stopped.exit_code
    except OSError as error:
        return say_unwritable(errors, out, error)


def say(errors: Console, error: UserError | SourceError) -> int:
    """Prints what the user can mend, in one line. Returns the exit code."""
    errors.print(printable(str(error)), style="bold red", markup=False, emoji=False, highlight=False, soft_wrap=True)
    return error.exit_code if isinstance(error, UserError) else 2


def say_noise(errors: Console, noise: Noise) -> None:
    """Says how much decoders said of damaged files."""
    if said := noise.sentence():
        errors.print(said, style="yellow", markup=False, emoji=False, highlight=False)


def say_unwritable(errors: Console, out: Path, error: OSError) -> int:
    """Prints why a folder could not be written to in the end. Returns the exit code."""
    said = printable(f"{out}: {error.strerror or error}.")
    errors.print(said, style="bold red", markup=False, emoji=False, highlight=False, soft_wrap=True)
    return 3


def new_folder() -> Path:
    """Returns where a run's files go unless the user says otherwise."""
    return _RUNS / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")


def check_out(out: Path, *names: str) -> None:
    """Finds out before anything is measured that the results can be written, and take the place of nothing.

    Args:
      names: of all files that the command writes there, but for its logs.
    Raises:
      UserError: if not.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
        free_bytes = shutil.disk_usage(out).free
    except OSError as error:
        raise UserError(f"--out {out}: results cannot be written there: {error.strerror}.") from error
    if free_bytes < 50e6:
        raise UserError(f"--out {out}: no room on disk, {free_bytes / 1e6:.0f} MB are free and 50 MB are needed.")
    for name in names:
        if os.path.lexists(out / name):
            raise UserError(f"--out {out} holds {name} already: nothing is overwritten. Choose another folder.")


def new_log(path: Path) -> Path:
    """Creates an empty log, `cpu-2.log` where there is a `cpu.log`: what its maker appends to and removes is its own.

    Returns:
      Its path.
    """
    number, log = 1, path
    while True:
        try:
            log.touch(exist_ok=False)  # fails at a link, too
            return log
        except FileExistsError:
            number += 1
            log = path.with_stem(f"{path.stem}-{number}")


def remove_if_empty(out: Path) -> None:
    """Leaves no folder behind for a run that measured nothing."""
    with contextlib.suppress(OSError):
        out.rmdir()
        if out.parent == _RUNS:
            _RUNS.rmdir()


def devices_here() -> tuple[Device, ...]:
    """Returns the CPU, and the GPU beside it where a driver is."""
    devices = [Device(kind="cpu", name="cpu")]
    if any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")):
        devices.append(Device(kind="gpu", name="gpu"))
    return tuple(devices)


class _Bar(Progress):
    """A bar that prints nothing where it is disabled; rich 13 ends it with an empty line."""

    def stop(self) -> None:
        if not self.disable:
            super().stop()


def progress_bar(console: Console) -> Progress:
    """Returns a bar with time left, for terminals only."""
    # It redraws only when told to, between windows: a thread that redraws would take a core from what is measured.
    return _Bar(
        TextColumn("{task.description}", markup=False),
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


def read_source(
    data: str,
    progress: Progress,
    errors: Console,
    results: str | None = "results.json",
    skip_list: Path | None = None,
) -> ImageSource:
    """Opens what `--data` names, and says which files are left out and that `results`, if any, names them.

    Args:
      data: the images.
      progress: gets a task while they are read.
      errors: where it is said.
      results: the name of the file that names them, if there is one.
      skip_list: a list of files to leave out, too.
    Raises:
      SourceError: if it cannot be used.
    """
    listed = read_skip_list(skip_list)
    task = progress.add_task(f"reading {data}"[:40], total=None)

    def report(done: int, total: int) -> None:
        progress.update(task, completed=done, total=total, refresh=done % 50 == 0 or done == total)

    source = open_source(data, skip_list=listed, progress=report)
    progress.remove_task(task)
    say_left_out(errors, source, *([f"all named in {results}"] if results else []))
    return source


def say_left_out(errors: Console, source: ImageSource, where: str = "python -m benchmarks.doctor names all") -> None:
    """Says which of a source's files are left out, and which entries of a skip list are not."""
    for sentence in source.left_out(where):
        errors.print(sentence, style="yellow", markup=False, emoji=False, highlight=False)
