"""Profiles an unmodified script: how much of each Keras `fit`, or loop over a `DataLoader`, is loading or compute.

python -m profiles [--max-steps N] [--no-ceilings] [--lines] [--files-per-sample N] [--out DIR] train.py ARGS
python -m profiles show runs/TIME/results.json
python -m profiles compare runs/BEFORE runs/AFTER
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import datetime
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from profiles.script.run import after_import, run_script

if TYPE_CHECKING:
    from profiles.script.loops import Loops
    from profiles.script.profiler import Profiler

_NAME = "python -m profiles"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the script's exit code, or 2 for invalid arguments."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] in (["show"], ["compare"]):  # a script named "show" is run as ./show
        from profiles.report.show import main as show

        return show(words)
    arguments = _parser().parse_args(words)
    out = Path(arguments.out or Path("runs") / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")).absolute()
    script = Path(arguments.script)
    refusal = _refusal(script, arguments.max_steps, arguments.files_per_sample, out)
    if refusal:
        _say(refusal)
        return 2
    profilers: list[Profiler] = []
    loops: list[Loops] = []

    def watch_keras() -> None:
        if hasattr(sys.modules["keras"], "Model"):
            from profiles.script.profiler import Profiler

            profilers.append(Profiler(ceilings=not arguments.no_ceilings, max_steps=arguments.max_steps))
            profilers[0].attach()

    def watch_data_loaders() -> None:
        from profiles.script.loops import Loops

        loops.append(Loops(max_steps=arguments.max_steps))
        loops[0].attach()

    pid = os.getpid()
    blocked = False

    def report(ended_by: BaseException | None) -> None:
        nonlocal blocked
        if os.getpid() == pid:  # a child process that the script forked also runs this at its end
            with contextlib.suppress(KeyboardInterrupt):
                for profiler in profilers:
                    profiler.wait()
                for loop in loops:
                    loop.wait()
            with _quiet_stdout():
                blocked = _report(
                    profilers,
                    loops,
                    script.name,
                    out,
                    ended_by,
                    lines=arguments.lines,
                    files_per_sample=arguments.files_per_sample,
                )

    after_import("keras", watch_keras)
    after_import("torch.utils.data", watch_data_loaders)
    code = run_script(arguments.script, arguments.arguments, report)
    if blocked:
        _leave(code)
    return code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _say(f"{message}. See {_NAME} --help.")
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_NAME,
        usage=f"{_NAME} [--max-steps N] [--no-ceilings] [--lines] [--files-per-sample N] [--out DIR] SCRIPT.py "
        "[ARG ...]\n"
        f"       {_NAME} show FILE [--html OUT | --json | --csv]\n"
        f"       {_NAME} compare A B",
        description="Runs a Keras or PyTorch script as it is and says how much of each fit, or of each loop over a "
        "DataLoader, was loading and how much compute. The report goes to stderr and to files; output and exit code "
        "are the script's own.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--max-steps",
        type=int,
        metavar="N",
        help="leave the script by SystemExit after N steps, inside fit",
    )
    parser.add_argument("--no-ceilings", action="store_true", help="do not run the model by itself after each fit")
    parser.add_argument("--lines", action="store_true", help="time the lines of the data's Python functions")
    parser.add_argument(
        "--files-per-sample",
        type=int,
        default=1,
        metavar="N",
        help="from how many files the script makes a sample, such as 2 for a photo and its mask [1]",
    )
    parser.add_argument("--out", metavar="DIR", help="folder for results.json and report.html [runs/TIME]")
    parser.add_argument("script", metavar="SCRIPT.py", help="what to run; everything behind it is the script's")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARG", help=argparse.SUPPRESS)
    return parser


def _refusal(script: Path, max_steps: int | None, files_per_sample: int, out: Path) -> str | None:
    """Returns why the command cannot run with these arguments, in one line; None if it can."""
    if max_steps is not None and max_steps < 1:
        return f"--max-steps must be at least 1. Received: {max_steps}."
    if files_per_sample < 1:
        return f"--files-per-sample must be at least 1. Received: {files_per_sample}."
    try:
        if not script.is_file():
            return f"{script}: no such script."
        for name in ("results.json", "report.html"):
            if os.path.lexists(out / name):
                return f"--out {out} holds {name} already: nothing is overwritten. Choose another folder."
        folder = next(path for path in (out, *out.parents) if path.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            return f"--out {out}: results cannot be written there, {folder} is no folder that can be written to."
    except OSError as error:
        return f"{error.filename}: {error.strerror}."
    return None


def _say(line: str) -> None:
    """Prints a line to stderr. A closed stderr is no error: it must not change the script's exit code."""
    from profiles.text import printable

    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{_NAME}: {printable(line).replace(chr(10), ' ')}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def _quiet_stdout() -> Iterator[None]:
    """Redirects stdout to stderr: reading the script's data again must add nothing to the script's output."""
    try:
        sys.stdout.flush()
        stdout_copy = os.dup(1)
        os.dup2(2, 1)
    except (OSError, ValueError, AttributeError):  # stdout or stderr is closed
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        os.dup2(stdout_copy, 1)
        os.close(stdout_copy)


def _report(
    profilers: Sequence[Profiler],
    loops: Sequence[Loops],
    script: str,
    out: Path,
    ended_by: BaseException | None,
    *,
    lines: bool,
    files_per_sample: int = 1,
) -> bool:
    """Prints to stderr what was measured, and writes the files. Never raises: the exit code must stay the script's.

    Returns:
      Whether a thread still reads the script's data, so that Python could not end by itself.
    """
    ended_well = ended_by is None or isinstance(ended_by, SystemExit)
    try:
        watchers: list[Profiler | Loops] = [*profilers, *loops]
        for watcher in watchers:
            watcher.pause()
        if not any(watcher.fits for watcher in watchers):
            why = "" if watchers else " (it imported neither Keras 3 nor PyTorch's DataLoader)"
            steps = f"{script} made no step of fit, nor of a loop over a DataLoader{why}"
            unwatched = next((profiler.why_unwatched for profiler in profilers if profiler.why_unwatched), None)
            _say(f"nothing measured, {unwatched or steps}.")
            return False
        from profiles.report.document import write
        from profiles.report.measurements import KIND
        from profiles.script.report import report_on
        from profiles.text import Terminal, print_files

        document = report_on(watchers, script=script, complete=ended_well, files_per_sample=files_per_sample)
        write(out, document, KIND, KIND.derive(document))  # before the stage tables, which may fail or block
        blocked = False
        if ended_well and profilers and profilers[0].fits:
            from profiles.script.stages import with_stages

            document, blocked = with_stages(document, profilers[0], lines=lines)
            write(out, document, KIND, KIND.derive(document))
        console = Terminal(stderr=True)
        KIND.print(console, document, KIND.derive(document))
        print_files(console, "results and report", out / "results.json", out / "report.html")
        return blocked
    except KeyboardInterrupt:
        _say(f"interrupted. What was watched is in {out} if it was written by then.")
        return True
    except Exception as error:  # an error here loses the report and must not change how the script ended
        _say(f"no report: {type(error).__name__}: {error}")
        return False


def _leave(code: int) -> NoReturn:
    """Ends the process as Python would, but without waiting for the thread that reading the data blocks."""
    threading._shutdown()  # type: ignore[attr-defined]  # joins the script's threads; no public function does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
