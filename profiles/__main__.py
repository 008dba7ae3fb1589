"""Profiles somebody's unmodified script: loading against compute, for each Keras `fit` and loop over a `DataLoader`.

python -m profiles [--max-steps N] [--no-ceilings] [--lines] [--out DIR] train.py ARGS
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
    """Runs the command. Returns the script's exit code, or 2 for a wrong call."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] in (["show"], ["compare"]):  # a script of that name is ./show
        from profiles.report.show import main as show

        return show(words)
    arguments = _parser().parse_args(words)
    out = Path(arguments.out or Path("runs") / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")).absolute()
    script = Path(arguments.script)
    wrong = _wrong(script, arguments.max_steps, out)
    if wrong:
        _say(wrong)
        return 2
    profilers: list[Profiler] = []
    loops: list[Loops] = []

    def keras_is_there() -> None:
        if hasattr(sys.modules["keras"], "Model"):
            from profiles.script.profiler import Profiler

            profilers.append(Profiler(ceilings=not arguments.no_ceilings, max_steps=arguments.max_steps))
            profilers[0].attach()

    def data_loader_is_there() -> None:
        from profiles.script.loops import Loops

        loops.append(Loops(max_steps=arguments.max_steps))
        loops[0].attach()

    ours = os.getpid()
    blocked = False

    def report(ended_by: BaseException | None) -> None:
        nonlocal blocked
        if os.getpid() == ours:  # a forked child of the script's comes by here as well
            with contextlib.suppress(KeyboardInterrupt):
                for profiler in profilers:
                    profiler.wait()
                for loop in loops:
                    loop.wait()
            with _quiet_stdout():
                blocked = _report(profilers, loops, script.name, out, ended_by, lines=arguments.lines)

    after_import("keras", keras_is_there)
    after_import("torch.utils.data", data_loader_is_there)
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
        usage=f"{_NAME} [--max-steps N] [--no-ceilings] [--lines] [--out DIR] SCRIPT.py [ARG ...]\n"
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
    parser.add_argument("--out", metavar="DIR", help="folder for results.json and report.html [runs/TIME]")
    parser.add_argument("script", metavar="SCRIPT.py", help="what to run; everything behind it is the script's")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARG", help=argparse.SUPPRESS)
    return parser


def _wrong(script: Path, max_steps: int | None, out: Path) -> str | None:
    """Says in a line what is wrong with a call; None where nothing is."""
    if max_steps is not None and max_steps < 1:
        return f"--max-steps must be at least 1. Received: {max_steps}."
    try:
        if not script.is_file():
            return f"{script}: no such script."
        for name in ("results.json", "report.html"):
            if os.path.lexists(out / name):
                return f"--out {out} holds {name} already: nothing is overwritten. Choose another folder."
        folder = next(one for one in (out, *out.parents) if one.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            return f"--out {out}: results cannot be written there, {folder} is no folder that can be written to."
    except OSError as error:
        return f"{error.filename}: {error.strerror}."
    return None


def _say(line: str) -> None:
    """Prints a line to stderr, if that is still there: it is never worth the script's exit code."""
    from profiles.text import printable

    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{_NAME}: {printable(line).replace(chr(10), ' ')}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def _quiet_stdout() -> Iterator[None]:
    """Sends what anything prints to stderr: the script has ended, and what we run of it must not add to its output."""
    try:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    except (OSError, ValueError, AttributeError):  # one of them is closed
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _report(
    profilers: Sequence[Profiler],
    loops: Sequence[Loops],
    script: str,
    out: Path,
    ended_by: BaseException | None,
    *,
    lines: bool,
) -> bool:
    """Says to stderr what was measured, and writes it; never raises, the script's exit code is not ours.

    Returns:
      Whether something of the script's still blocks a thread, so that Python could not end.
    """
    ended_well = ended_by is None or isinstance(ended_by, SystemExit)
    try:
        watchers: list[Profiler | Loops] = [*profilers, *loops]
        for watcher in watchers:
            watcher.pause()
        if not any(watcher.fits for watcher in watchers):
            why = "" if watchers else " (it imported neither Keras 3 nor PyTorch's DataLoader)"
            _say(f"nothing measured, {script} made no step of fit, nor of a loop over a DataLoader{why}.")
            return False
        from profiles.report.document import write
        from profiles.report.measurements import KIND
        from profiles.script.report import report_on
        from profiles.text import Terminal, print_files

        document = report_on(watchers, script=script, complete=ended_well)
        write(out, document, KIND, KIND.derive(document))  # what was watched is safe, whatever comes of the data
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
    except Exception as error:  # the script has ended as it did; only our report is lost
        _say(f"no report: {type(error).__name__}: {error}")
        return False


def _leave(code: int) -> NoReturn:
    """Ends the process as Python would, but without waiting for a thread that nothing can wake."""
    threading._shutdown()  # type: ignore[attr-defined]  # joins the script's own threads; there is no public way
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
