"""Finds what is wrong with a folder of images, changes nothing, and lists the files that are better left out.

python -m benchmarks.doctor photos/train
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.lab.command import check_out, exit_code_of, new_folder, progress_bar, remove_if_empty
from benchmarks.lab.options import UserError
from pipeline.commands import ArgumentParser
from pipeline.text import shown
from profiles.text import Terminal

_RESULTS, _SKIP_LIST = "doctor.json", "skip.jsonl"
_EPILOG = (
    "Exit code 1: something would stop a training. docs/doctor.md says what each trouble means. "
    "The files to leave out are listed in skip.jsonl, for --skip-list of other commands."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0; 1 if something would stop a training; 2 for bad input; 3 if nothing can be examined or written; 128 + signal.
    """
    arguments = _parser().parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    out = arguments.out or new_folder()
    try:
        return exit_code_of(
            lambda: _run(arguments.folder, out, console, errors), errors, out, "stopped: nothing was kept"
        )
    finally:
        remove_if_empty(out)


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="python -m benchmarks.doctor", description=(__doc__ or "").splitlines()[0], epilog=_EPILOG
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help="one folder of images per class, or splits such as train/ and test/")
    add("--out", type=Path, metavar="DIR", help="where doctor.json and skip.jsonl go (default: runs/TIME)")
    return parser


def _run(root: Path, out: Path, console: Console, errors: Console) -> int:
    from benchmarks.doctor.folder import findings_of, list_folder
    from benchmarks.doctor.measure import examine_all
    from benchmarks.doctor.report import document, entries, print_findings, said
    from benchmarks.doctor.results import in_order
    from benchmarks.lab.child import ChildDied
    from pipeline.sources import skip_list_text
    from profiles import clock
    from profiles.provenance import usable_cores
    from profiles.report import to_json, write_atomically

    folder = list_folder(root)
    if Path(os.path.realpath(out)).is_relative_to(root.resolve()):
        raise UserError(f"--out {out} would lie in the folder that is examined. Give one outside of {root}.")
    check_out(out, _RESULTS, _SKIP_LIST)
    begin_ns = clock.now_ns()
    examined = []
    try:
        with progress_bar(errors) as progress:
            task = progress.add_task("examining", total=len(folder.files))
            for one in examine_all(root, folder.files, round(usable_cores())):
                examined.append(one)
                progress.update(task, advance=1, refresh=len(examined) % 50 == 0)
    except ChildDied as error:
        raise UserError(f"nothing could be examined. {shown(str(error))}.", exit_code=3) from error
    seconds = (clock.now_ns() - begin_ns) / 1e9
    findings = in_order([finding for one in examined for finding in one.findings] + findings_of(folder, examined))
    if listed := entries(examined):
        splits = [split for split in folder.classes if split]
        write_atomically(out / _SKIP_LIST, skip_list_text(listed, splits))
    write_atomically(out / _RESULTS, to_json(document(folder, examined, findings)))
    print_findings(console, folder, findings, seconds)
    console.print(f"\n{said(examined, findings, out / _SKIP_LIST)}", highlight=False, markup=False, soft_wrap=True)
    return 1 if any(finding.stops for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
