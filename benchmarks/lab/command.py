"""Runs every command that measures: makes a plan, measures in rounds, writes results after each round, prints them."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import unstall
from unstall.benchmarks.lab.options import UserError
from unstall.commands import shell_words, typed
from unstall.pipeline import ImageSource, SourceError, open_source, read_skip_list
from unstall.pipeline.commands import Noise, Stopped, signals
from unstall.profiles import Device, clock
from unstall.profiles.devices import CPU
from unstall.profiles.provenance import without_folder
from unstall.profiles.report import (
    REPORT,
    RESULTS,
    answer_of,
    classes_text,
    github,
    print_document,
    print_more,
    to_json,
    write,
    write_results,
)
from unstall.profiles.text import Terminal, print_files
from unstall.text import printable

_RUNS = Path("runs")


class Plan(Protocol):
    """The checked options of a command, frozen; `out` is the folder for the results."""

    @property
    def out(self) -> Path: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that measures.

    Attributes:
      parser: returns the parser of the command line.
      plan: makes the plan from the parsed options and the folder for results; raises `UserError` for wrong options.
      lab: "module:function" that takes plan, progress and the console for errors, and returns what measures, as a
        `LabRun` does. The module is imported only after the plan was made and the folder was checked.
      kind: "module:NAME" of the `Kind` of the command's documents.
      listing: prints what the user can choose from, for `--list`; None for a command without this option.
      exit_code: returns the exit code of a complete run, from its document and what is derived from the document.
      products: names of files that the command writes beside results and report when it has measured everything. Its
        lab has a method `write_products(console, derived)`, which writes these files and returns their paths.
    """

    parser: Callable[[], argparse.ArgumentParser]
    plan: Callable[[argparse.Namespace, Path], Plan]
    lab: str
    kind: str
    listing: Callable[[Console], None] | None = None
    exit_code: Callable[[Any, Any], int] = lambda document, derived: 0
    products: tuple[str, ...] = ()


def run(
    command: Command,
    argv: Sequence[str] | None = None,
    *,
    choose: Callable[[argparse.Namespace], Command] | None = None,
) -> int:
    """Runs a command. Returns its exit code; 2 for bad input, 3 if nothing was measured, 128 + signal if stopped.

    Args:
      choose: returns what runs in the place of `command`, with the same parser, by the options that were given.
    """
    arguments = command.parser().parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    if command.listing is not None and arguments.list:
        command.listing(console)
        return 0
    out = arguments.out or new_folder()
    chosen = command if choose is None else choose(arguments)
    return exit_code_of(
        lambda: run_plan(chosen, chosen.plan(arguments, out), console, errors, as_json=arguments.json), errors, out
    )


def run_plan(command: Command, plan: Plan, console: Console, errors: Console, *, as_json: bool = False) -> int:
    """Measures a plan, writes the results after each round, and prints them at the end; `as_json` as one object.

    Raises:
      UserError: if the results cannot be written, or nothing could be measured.
      Stopped: if a signal stops the run; the results so far are written first.
    """
    out = plan.out
    try:
        check_out(out, RESULTS, REPORT, *command.products)
        kind = unstall.of_ours(command.kind)
        with progress_bar(errors) as progress:
            lab = unstall.of_ours(command.lab)(plan, progress, errors)

            def keep(write: Callable[..., None], *, complete: bool) -> tuple[Any, Any]:
                """Writes the results so far, if there are any. Returns the document and what is derived from it."""
                document = replace(lab.document(complete=complete), typed=_typed(plan))
                derived = kind.derive(document)
                if kind.holds(document, derived):
                    write(out, document, kind, derived)
                return document, derived

            try:
                lab.measure(lambda: keep(write_results, complete=False))
                document, derived = keep(write, complete=True)
                lab.close()
            except BaseException as error:
                lab.kill()
                progress.stop()
                if kind.holds(*keep(write, complete=False)):
                    errors.print(_kept(out), soft_wrap=True)
                elif not isinstance(error, UserError):
                    errors.print("stopped: nothing measured", soft_wrap=True)
                raise
        if not kind.rows(derived):
            reasons = "; ".join(f"{left_out.who}: {left_out.reason}" for left_out in document.left_out)
            raise UserError(f"nothing could be measured. {reasons}", exit_code=3)
        exit_code = command.exit_code(document, derived)
        if as_json:
            console.file.write(to_json(answer_of(document, kind, derived, exit_code=exit_code)))
            console = errors
        else:
            print_document(console, document, kind, derived, details=getattr(plan, "details", False))
        github.tell(console, document, kind, derived)
        if kind.screens is None or as_json:
            print_files(console, "results and report", out / RESULTS, out / REPORT)
        else:
            print_more(console, out)
        if command.products and (products := lab.write_products(console, derived)):
            print_files(console, "written", *products)
        return exit_code
    finally:
        remove_if_empty(out)


def _kept(out: Path) -> str:
    """Returns what a command says that is stopped after it has measured something."""
    command = typed(f"unstall show {shlex.quote(str(out))}")
    return f"stopped: what was measured so far is in {out}. These results are partial; {command} shows them"


def _typed(plan: Plan) -> dict[str, str]:
    """Returns the data and the models of a plan as the user typed them, as `Document.typed` holds them."""
    given = (getattr(plan, "data", None), *getattr(plan, "models", {}).values(), getattr(plan, "model", None))
    return {without_folder(word): shell_words(word) for word in given if isinstance(word, str)}


def exit_code_of(run: Callable[[], int], errors: Console, out: Path, when_stopped: str = "") -> int:
    """Runs a command's work, which the first signal stops. An error of the work is printed in one line.

    Args:
      run: the work; returns the exit code.
      errors: the console for errors.
      out: where the work writes; named if writing fails.
      when_stopped: printed if a signal stops the work.
    Returns:
      The work's exit code; 2 or 3 after an error, 128 + signal if a signal stopped the work. 3 also after an error of
      this program, of which Python would make 1, the exit code of an answer that is bad.
    """
    try:
        with signals():
            return run()
    except (UserError, SourceError) as error:
        return say(errors, error)
    except Stopped as stopped:
        if when_stopped:
            errors.print(when_stopped, soft_wrap=True)
        return stopped.exit_code
    except OSError as error:
        return say_unwritable(errors, out, error)
    except Exception as error:
        traceback.print_exc()
        return say(errors, UserError(f"could not measure: {type(error).__name__}: {error}", exit_code=3))


def say(errors: Console, error: UserError | SourceError) -> int:
    """Prints an error that the user can mend, in one line. Returns the exit code."""
    errors.print(printable(str(error)), style="bold red", soft_wrap=True)
    return error.exit_code if isinstance(error, UserError) else 2


def say_noise(errors: Console, noise: Noise) -> None:
    """Prints how many warnings decoders gave of damaged files, if any."""
    if sentence := noise.sentence():
        errors.print(sentence, style="yellow")


def say_unwritable(errors: Console, out: Path, error: OSError) -> int:
    """Prints why writing to a folder, or to the file that the error names, failed. Returns the exit code."""
    message = printable(f"{error.filename or out}: {error.strerror or error}.")
    errors.print(message, style="bold red", soft_wrap=True)
    return 3


def new_folder() -> Path:
    """Returns the folder for a run's files if the user names none; the folder's name is the time and the process."""
    return clock.run_folder(_RUNS)


def check_out(out: Path, *names: str) -> None:
    """Checks before anything is measured that the results can be written, and that they would overwrite no file.

    Args:
      names: the names of all files that the command will write to the folder, without its logs.
    Raises:
      UserError: if results cannot be written, or one of the files exists already.
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
    """Creates an empty log with a new name: `cpu-2.log` if `cpu.log` exists. So nobody else writes to the same log.

    Returns:
      The path of the log.
    """
    number, log = 1, path
    while True:
        try:
            log.touch(exist_ok=False)  # fails if there is a link of this name, too
            return log
        except FileExistsError:
            number += 1
            log = path.with_stem(f"{path.stem}-{number}")


def remove_if_empty(out: Path) -> None:
    """Removes the folder of a run if it is empty, and the folder of all runs if that is empty, too."""
    with contextlib.suppress(OSError):
        out.rmdir()
        if out.parent == _RUNS:
            _RUNS.rmdir()


def devices_here() -> tuple[Device, ...]:
    """Returns the CPU, and the GPU if this machine has a driver for one."""
    devices = [CPU]
    if any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")):
        devices.append(Device(kind="gpu", name="gpu"))
    return tuple(devices)


class _Bar(Progress):
    """A progress bar that prints nothing where it is disabled; in rich 13, `stop` would print an empty line."""

    def stop(self) -> None:
        if not self.disable:
            super().stop()


def progress_bar(console: Console) -> Progress:
    """Returns a progress bar that shows the time left, on terminals only."""
    # Callers redraw the bar, between windows: a thread that redraws it would take a core from what is measured.
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
    """Opens the images that `--data` names, and prints which files are left out.

    Args:
      data: what `--data` names.
      progress: gets a task while the images are read.
      errors: the console for the sentences on the files that are left out.
      results: the file that will name all of these files, for the sentences; None if no file will.
      skip_list: a list of more files to leave out.
    Raises:
      SourceError: if the images or the skip list cannot be used.
    """
    listed = read_skip_list(skip_list)
    task = progress.add_task(f"reading {data}"[:40], total=None)

    def report(done: int, total: int) -> None:
        progress.update(task, completed=done, total=total, refresh=done % 50 == 0 or done == total)

    source = open_source(data, skip_list=listed, progress=report)
    progress.remove_task(task)
    say_left_out(errors, source, *([f"all named in {results}"] if results else []))
    return source


def read_files(data: str, progress: Progress, errors: Console, *, skip_list: Path | None) -> ImageSource:
    """Opens the images that `--data` names, as `read_source` does, for a command that needs files.

    Raises:
      SourceError: if the images or the skip list cannot be used.
      UserError: if the images are not files.
    """
    source = read_source(data, progress, errors, skip_list=skip_list)
    check_files(source, data)
    return source


def check_files(source: ImageSource, data: str) -> None:
    """Checks that each image is a file, as a command needs that reads, copies or serves the files themselves.

    Args:
      data: what `--data` names.
    Raises:
      UserError: if the images are those of a prepared copy, or lie in memory.
    """
    if source.root is None:
        raise UserError(f"--data must be a folder of files, or generated:N. Received: {data}.")


def take_whole(source: ImageSource, size: int, *, what: str, instead: str, most: int | None = None) -> ImageSource:
    """Returns as many of the images as fill whole batches or steps, spread over the list.

    Args:
      size: images of one.
      what: one of them, such as "A batch", for the message.
      instead: what helps beside more images.
      most: how many batches or steps at most; None for all.
    Raises:
      UserError: if there are too few images for one.
    """
    count = source.images // size
    if not count:
        raise UserError(f"{what} takes {size} images, and there are {source.images}: give more images, or {instead}.")
    return source.take(size * (count if most is None else min(most, count)))


def say_data(errors: Console, source: ImageSource) -> None:
    """Prints what was understood of the images, before anything is measured."""
    text = f"measuring {source.images:,} images, {classes_text(source.class_names)}, from {source.name}"
    errors.print(printable(text), style="dim")


def say_left_out(errors: Console, source: ImageSource, where: str = "unstall doctor names all") -> None:
    """Prints which of a source's files are left out, and which entries of its skip list no longer apply."""
    for sentence in source.left_out(where):
        errors.print(sentence, style="yellow")
