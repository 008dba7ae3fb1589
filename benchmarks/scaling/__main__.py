"""How loading grows with the number of files, the cores, the batch size and the image size.

python -m benchmarks.scaling --data photos/train --axes files,cores
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.lab.command import check_out, exit_code_of, new_folder, progress_bar, read_source, remove_if_empty
from benchmarks.lab.options import DATA, UserError, known_names
from benchmarks.scaling.plan import AXES, Plan
from pipeline import VARIANTS
from pipeline.commands import ArgumentParser
from pipeline.sources import add_skip_list_option
from profiles.provenance import usable_cores
from profiles.text import Terminal, print_files

# One of each kind: Python threads, OpenCV in Keras' workers, tf.data, and tf.data with less to decode.
_VARIANTS = ("generator", "py-dataset", "tf-data-autotune", "tf-data-scaled-decode")
_ROUNDS = 3
_LEAST_FILES, _MOST_FILES = 1_000, 100_000
_BATCH_SIZES = (8, 32, 128, 512)
_IMAGE_SIZES = (32, 64, 128, 256)
# In the list of the other axes: an epoch of the largest batches has some twenty of them.
_FILES = 10_000


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0, or 2 for bad input, 3 if nothing could be measured, 128 + signal if stopped."""
    arguments = _parser().parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    out = arguments.out or new_folder()

    def work() -> int:
        return run(_plan(arguments), arguments.data, out, console, errors, skip_list=arguments.skip_list)

    return exit_code_of(work, errors, out)


def run(plan: Plan, data: str, out: Path, console: Console, errors: Console, *, skip_list: Path | None = None) -> int:
    """Measures a plan, prints what it came to and writes `scaling.json` and `scaling.html`.

    Raises:
      UserError: if the results cannot be written, or nothing could be measured.
      SourceError: if the images cannot be used.
      Stopped: by a signal; what was measured so far is written.
    """
    from benchmarks.scaling.measure import Run
    from benchmarks.scaling.report import REPORT, RESULTS, Report

    try:
        check_out(out, RESULTS, REPORT)
        with progress_bar(errors) as progress:
            source = read_source(data, progress, errors, RESULTS, skip_list)
            measured = Run(plan, source, out)
            report = Report(plan, source, data)
            try:
                measured.measure(progress)
            except BaseException as error:
                progress.stop()
                if not isinstance(error, UserError):
                    kept = report.write(out, measured.rows, complete=False)
                    said = f"what was measured so far is in {out}" if kept else "nothing measured"
                    errors.print(f"stopped: {said}", highlight=False, markup=False, soft_wrap=True)
                raise
        if not report.write(out, measured.rows, complete=True):
            reasons = dict.fromkeys(row.failure for row in measured.rows if row.failure)
            raise UserError(f"nothing could be measured. {'; '.join(reasons)}", exit_code=3)
        report.print(console, measured.rows)
        print_files(console, "results and report", out / RESULTS, out / REPORT)
        return 0
    finally:
        remove_if_empty(out)


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="python -m benchmarks.scaling", description=(__doc__ or "").splitlines()[0], epilog=_EPILOG
    )
    add = parser.add_argument
    add("--data", default=DATA, metavar="DIR|tfds:NAME|generated:N", help=f"photos to take (default: {DATA})")
    add_skip_list_option(parser)
    add("--variants", default=",".join(_VARIANTS), metavar="NAME,...", help=f"(default: {', '.join(_VARIANTS)})")
    add("--axes", default=",".join(AXES), metavar="NAME,...", help=f"any of {', '.join(AXES)} (default: all)")
    add("--rounds", type=int, default=_ROUNDS, metavar="N", help=f"measurements of a point (default: {_ROUNDS})")
    add(
        "--most-files",
        type=int,
        default=_MOST_FILES,
        metavar="N",
        help=f"the longest list: {_LEAST_FILES:,}, ten times that, and so on up to N (default: {_MOST_FILES:,})",
    )
    add("--out", type=Path, metavar="DIR", help="where scaling.json and scaling.html go (default: runs/TIME)")
    return parser


_EPILOG = "Every point is a process of its own, some ten seconds long: all of them take about half an hour."


def _plan(arguments: argparse.Namespace) -> Plan:
    if arguments.rounds < 1:
        raise UserError(f"--rounds must be at least 1. Received: {arguments.rounds}.")
    if arguments.most_files < _LEAST_FILES:
        raise UserError(f"--most-files must be at least {_LEAST_FILES}. Received: {arguments.most_files}.")
    axes = known_names(arguments.axes, "--axes", AXES)
    if "cores" in axes and not hasattr(os, "sched_setaffinity"):
        raise UserError("--axes cores needs a system that binds processes to cores, such as Linux. Give the others.")
    values = {
        "files": files_up_to(arguments.most_files),
        "cores": cores_up_to(int(usable_cores())),
        "batch-size": _BATCH_SIZES,
        "image-size": _IMAGE_SIZES,
    }
    return Plan(
        axes={axis: values[axis] for axis in AXES if axis in axes},
        variants={name: VARIANTS[name] for name in known_names(arguments.variants, "--variants", VARIANTS)},
        rounds=arguments.rounds,
        files=_FILES,
    )


def files_up_to(most: int) -> tuple[int, ...]:
    """Returns 1,000 and each tenfold of it that is not above `most`."""
    values = [_LEAST_FILES]
    while values[-1] * 10 <= most:
        values.append(values[-1] * 10)
    return tuple(values)


def cores_up_to(most: int) -> tuple[int, ...]:
    """Returns the powers of two below `most`, and `most`, at least 1."""
    most = max(1, most)
    return (*(2**power for power in range(most.bit_length()) if 2**power < most), most)


if __name__ == "__main__":
    sys.exit(main())
