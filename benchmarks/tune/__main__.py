"""Finds the fastest pipeline for a folder, a model and a device, proves it by measuring, and writes it as plain code.

python -m benchmarks.tune --data photos/train --model cats-dogs-64 --device cpu
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.lab.command import (
    Command,
    check_out,
    exit_code_of,
    new_folder,
    progress_bar,
    read_source,
    remove_if_empty,
    run,
)
from benchmarks.tune import check
from benchmarks.tune.plan import SCRIPT, TOML, parser, read_advice, read_search
from benchmarks.tune.rounds import say_beside
from profiles import provenance
from profiles.report import to_json, write_atomically
from profiles.text import Terminal

SEARCH = Command(
    parser=parser,
    plan=read_search,
    lab="benchmarks.tune.measure:open_run",
    kind="benchmarks.tune.report:KIND",
    products=(TOML, SCRIPT),
)
ADVICE = Command(
    parser=parser,
    plan=read_advice,
    lab="benchmarks.tune.own.measure:open_run",
    kind="benchmarks.tune.own.report:KIND",
)
_RESULTS = "tune.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0; 2 for bad input; 3 if nothing could be measured; 128 + signal if stopped; and of a check 1 where a choice
      misses its goal, 4 where that could not be shown.
    """
    arguments = parser().parse_args(argv)
    if not arguments.check:
        return run(SEARCH if arguments.pipeline is None else ADVICE, argv)
    console, errors = Terminal(), Terminal(stderr=True)
    out = arguments.out or new_folder()
    try:
        return exit_code_of(lambda: _check(arguments, out, console, errors), errors, out)
    finally:
        remove_if_empty(out)


def _check(arguments: argparse.Namespace, out: Path, console: Console, errors: Console) -> int:
    limits = read_search(arguments, out).asked.limits
    check_out(out, _RESULTS)
    with progress_bar(errors) as progress:
        source = read_source(arguments.data, progress, errors, _RESULTS, arguments.skip_list)
        checks = check.check(source, limits, out, say_beside(progress))
    document = {"schema_version": 2, "provenance": provenance.machine(), **check.to_dict(checks)}
    write_atomically(out / _RESULTS, to_json(document))
    check.print_checks(console, checks)
    return max(target.exit_code for target in checks)


if __name__ == "__main__":
    sys.exit(main())
