"""Finds what is wrong with a folder of images, changes nothing, and lists the files that are better left out.

unstall doctor --data photos/train
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from unstall.benchmarks.doctor.parser import parser
from unstall.benchmarks.doctor.plan import SKIP_LIST, Plan, read_plan
from unstall.benchmarks.lab.command import check_out, exit_code_of, new_folder, progress_bar, remove_if_empty
from unstall.pipeline.sources import skip_list_text
from unstall.profiles.report import REPORT, RESULTS, write, write_atomically
from unstall.profiles.text import Terminal, print_files


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0; 1 if something would stop a training; 2 for bad input; 3 if nothing can be examined or written; 128 + signal.
    """
    arguments = parser().parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    out = arguments.out or new_folder()
    try:
        return exit_code_of(
            lambda: _run(read_plan(arguments, out), console, errors), errors, out, "stopped: nothing was kept"
        )
    finally:
        remove_if_empty(out)


def _run(plan: Plan, console: Console, errors: Console) -> int:
    """Examines a folder, and writes and prints the findings.

    `lab.command.run` is not used here, for two reasons. It takes a run without results for a failure, but a folder
    without findings is a healthy one. It also writes the results of a run that was stopped, but a skip list of half the
    folder could be taken for the list of the whole.
    """
    from unstall.benchmarks.doctor.folder import entries
    from unstall.benchmarks.doctor.measure import examine_folder
    from unstall.benchmarks.doctor.report import KIND

    check_out(plan.out, RESULTS, REPORT, SKIP_LIST)
    with progress_bar(errors) as progress:
        document = examine_folder(plan, progress)
    results = KIND.derive(document)
    files = [RESULTS, REPORT]
    if skipped := entries(document.samples.files):
        splits = [split for split in document.samples.classes if split]
        write_atomically(plan.out / SKIP_LIST, skip_list_text(skipped, splits))
        files.append(SKIP_LIST)
    write(plan.out, document, KIND, results)
    KIND.print(console, document, results)
    what = "results, report and skip list" if skipped else "results and report"
    print_files(console, what, *(plan.out / name for name in files))
    return 1 if results.stops else 0


if __name__ == "__main__":
    sys.exit(main())
