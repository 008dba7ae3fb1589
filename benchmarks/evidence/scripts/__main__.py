"""Runs training scripts plainly, watched, and edited by hand, and compares what was said with what came of it.

unstall scripts scripts/ --only weather,dogs
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from unstall.benchmarks.evidence.scripts.parser import parser
from unstall.benchmarks.evidence.scripts.plan import read_plan
from unstall.benchmarks.lab.command import Command, run

COMMAND = Command(
    parser=parser,
    plan=read_plan,
    lab="benchmarks.evidence.scripts.measure:Lab",
    kind="benchmarks.evidence.scripts.report:KIND",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0, or 2 for bad input, 3 if nothing could be measured, 128 + signal if stopped."""
    return run(COMMAND, argv)


if __name__ == "__main__":
    sys.exit(main())
