"""Measures how loading grows with the number of files, the cores, the batch size and the image size.

unstall scaling --data photos/train --axes files,cores
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from unstall.benchmarks.lab.command import Command, run
from unstall.benchmarks.scaling.parser import parser
from unstall.benchmarks.scaling.plan import read_plan

COMMAND = Command(
    parser=parser,
    plan=read_plan,
    lab="benchmarks.scaling.measure:open_run",
    kind="benchmarks.scaling.report:KIND",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0, or 2 for bad input, 3 if nothing could be measured, 128 + signal if stopped."""
    return run(COMMAND, argv)


if __name__ == "__main__":
    sys.exit(main())
