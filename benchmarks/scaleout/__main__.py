"""Predicts whether workers on other hosts pay, how many, and where to cut the pipeline; and checks its predictions.

unstall scaleout --data photos/train --worker-cores 4 --worker-price 0.2 --trainer-price 3 --network 10gbit
unstall scaleout --check
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from unstall.benchmarks.lab.command import Command, run
from unstall.benchmarks.scaleout.parser import parser
from unstall.benchmarks.scaleout.plan import read_plan

COMMAND = Command(
    parser=parser,
    plan=read_plan,
    lab="benchmarks.scaleout.measure:open_run",
    kind="benchmarks.scaleout.report:KIND",
)
CHECK = Command(
    parser=parser,
    plan=read_plan,
    lab="benchmarks.scaleout.check.measure:open_run",
    kind="benchmarks.scaleout.check.report:KIND",
    exit_code=lambda document, results: 1 if results.missed else 4 if document.left_out else 0,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns 0; 1 if a prediction misses; 2 for bad input, 3 if nothing could be measured, 4 if pools of a check could
    not be measured and none misses, 128 + signal if stopped.
    """
    return run(COMMAND, argv, choose=lambda arguments: CHECK if arguments.check else COMMAND)


if __name__ == "__main__":
    sys.exit(main())
