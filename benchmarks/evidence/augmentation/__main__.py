"""Measures what each augmentation costs, by library and place.

python -m benchmarks.evidence.augmentation --operations shear,zoom --libraries keras_layers,opencv
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from unstall.benchmarks.evidence.augmentation.measure import open_run
from unstall.benchmarks.evidence.augmentation.plan import parser, read_plan
from unstall.benchmarks.evidence.augmentation.view import view_of
from unstall.benchmarks.evidence.run import Evidence, run

EVIDENCE = Evidence(parser=parser, plan=read_plan, lab=open_run, view=view_of)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0, or 2 for bad input, 3 if nothing could be measured, 128 + signal if stopped."""
    return run(EVIDENCE, argv)


if __name__ == "__main__":
    sys.exit(main())
