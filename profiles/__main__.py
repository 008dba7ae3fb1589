"""Profiles somebody's unmodified Keras script: loading against compute, for each of its `fit` calls.

python -m profiles [--max-steps N] [--no-ceilings] [--lines] [--out DIR] train.py ARGS
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profiles.script import after_import, hide_our_packages, run_script

if TYPE_CHECKING:
    from profiles.profiler import Profiler

_NAME = "python -m profiles"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the script's exit code, or 2 for a wrong call."""
    arguments = _parser().parse_args(argv)
    script = Path(arguments.script)
    wrong = _wrong(script, arguments.max_steps, Path(arguments.out) if arguments.out else None)
    if wrong:
        print(f"{_NAME}: {wrong}", file=sys.stderr)
        return 2
    out = Path(arguments.out or Path("runs") / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")).resolve()
    profilers: list[Profiler] = []

    def keras_is_there() -> None:
        if hasattr(sys.modules["keras"], "Model"):
            from profiles.profiler import Profiler

            profilers.append(Profiler(ceilings=not arguments.no_ceilings, max_steps=arguments.max_steps))
            profilers[0].attach()

    ours = os.getpid()

    def report(ended_by: BaseException | None) -> None:
        if os.getpid() == ours:  # a forked child of the script's comes by here as well
            _report(profilers[0] if profilers else None, script.name, out, ended_by, lines=arguments.lines)

    hide_our_packages()
    after_import("keras", keras_is_there)
    return run_script(arguments.script, arguments.arguments, report)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_NAME,
        usage=f"{_NAME} [--max-steps N] [--no-ceilings] [--lines] [--out DIR] SCRIPT.py [ARG ...]",
        description="Runs a Keras script as it is and says how much of each fit was loading and how much compute. "
        "The report goes to stderr and to files; output and exit code are the script's own.",
        allow_abbrev=False,
    )
    parser.add_argument("--max-steps", type=int, metavar="N", help="leave fit after N steps; later lines do not run")
    parser.add_argument("--no-ceilings", action="store_true", help="do not run the model by itself after each fit")
    parser.add_argument("--lines", action="store_true", help="time the lines of the data's Python functions")
    parser.add_argument("--out", metavar="DIR", help="folder for results.json and report.html [runs/TIME]")
    parser.add_argument("script", metavar="SCRIPT.py", help="what to run; everything behind it is the script's")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARG", help=argparse.SUPPRESS)
    return parser


def _wrong(script: Path, max_steps: int | None, out: Path | None) -> str | None:
    if max_steps is not None and max_steps < 1:
        return f"--max-steps must be at least 1. Received: {max_steps}."
    if not script.is_file():
        return f"{script}: no such script."
    if out is not None and (out / "results.json").exists():
        return f"--out {out} holds the results of an earlier run. Choose another folder, or remove them."
    own = next((one for one in (script.parent / "profiles.py", script.parent / "profiles") if _is_module(one)), None)
    # Ours is running, and a script may import it; one process has room for one module of a name.
    if own is not None and own.resolve() != Path(__file__).resolve().parent:
        return f"{own} has the name of this profiler, and would be hidden by it. Rename it for the run."
    return None


def _is_module(path: Path) -> bool:
    return path.is_file() if path.suffix else (path / "__init__.py").is_file()


def _report(profiler: Profiler | None, script: str, out: Path, ended_by: BaseException | None, *, lines: bool) -> None:
    """Says to stderr what was measured, and writes it; never raises, the script's exit code is not ours."""
    from rich.console import Console

    console = Console(stderr=True)
    if profiler is None or not profiler.fits:
        why = "" if profiler is not None else " (it did not import Keras 3)"
        print(f"{_NAME}: nothing measured, {script} made no step of fit{why}.", file=sys.stderr)
        return
    try:
        from profiles.script_report import report_on

        ended_well = ended_by is None or isinstance(ended_by, SystemExit)
        found = report_on(profiler, script=script, complete=ended_well, stages=ended_well, lines=lines)
        found.print(console)
        found.write(out)
        files = f"\nresults and report: {out}/results.json, {out}/report.html"
        console.print(files, highlight=False, markup=False, soft_wrap=True)
    except Exception as error:  # the script has ended as it did; only our report is lost
        print(f"{_NAME}: no report: {type(error).__name__}: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
