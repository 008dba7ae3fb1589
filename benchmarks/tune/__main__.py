"""Finds the fastest pipeline for a folder, a model and a device, proves it by measuring, and writes it as plain code.

unstall tune --data photos/train --model cats-dogs-64 --device cpu
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from unstall.benchmarks.lab.command import Command, run
from unstall.benchmarks.tune.parser import parser
from unstall.benchmarks.tune.plan import DIFF, SCRIPT, TOML, read_advice, read_search

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
    products=(DIFF,),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0; 2 for bad input; 3 if nothing could be measured; 128 + signal if stopped."""
    return run(SEARCH, argv, choose=lambda arguments: SEARCH if arguments.pipeline is None else ADVICE)


if __name__ == "__main__":
    sys.exit(main())
