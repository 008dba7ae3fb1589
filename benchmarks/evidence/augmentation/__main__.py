"""Measures what each augmentation costs, by library and placement, and compares pictures: do all libraries do the same?

unstall augmentation --operations shear,zoom --libraries keras_layers,opencv
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from unstall.benchmarks.evidence.augmentation.parser import parser
from unstall.benchmarks.evidence.augmentation.plan import read_plan
from unstall.benchmarks.lab.command import Command, run

COMMAND = Command(
    parser=parser,
    plan=read_plan,
    lab="benchmarks.evidence.augmentation.measure:open_run",
    kind="benchmarks.evidence.augmentation.report:KIND",
    exit_code=lambda document, results: 1 if results.too_different else 0,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0; 1 if a row does not do the same as the reference; 2 for bad input; 3 if nothing could be measured;
      128 + signal if stopped.
    """
    return run(COMMAND, argv)


if __name__ == "__main__":
    sys.exit(main())
