"""Reproduces the published cat/dog accuracy ladder, and says whether a fast pipeline costs accuracy.

unstall accuracy --data photos --seeds 3
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from unstall.benchmarks.accuracy.parser import parser
from unstall.benchmarks.accuracy.plan import read_plan
from unstall.benchmarks.lab.command import Command, run

COMMAND = Command(
    parser=parser,
    plan=read_plan,
    lab="benchmarks.accuracy.measure:open_ladder",
    kind="benchmarks.accuracy.report:KIND",
    exit_code=lambda document, results: int(results.exit_code),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0 if the tuned pipeline costs no more than 2 points; 1 if it costs accuracy; 4 if neither was shown; 2 for bad
      input; 3 if nothing could be trained; 128 + signal if stopped.
    """
    return run(COMMAND, argv)


if __name__ == "__main__":
    sys.exit(main())
