"""Times training scripts as they are, as an expert edited their loading, and as `unstall profile --write` edits it.

python -m benchmarks.evidence.scripts scripts/ --only weather,dogs
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from unstall.benchmarks.evidence.run import Evidence, run
from unstall.benchmarks.evidence.scripts.measure import Lab
from unstall.benchmarks.evidence.scripts.plan import parser, read_plan
from unstall.benchmarks.evidence.scripts.view import view_of

EVIDENCE = Evidence(parser=parser, plan=read_plan, lab=Lab, view=view_of)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0, or 2 for bad input, 3 if nothing could be measured, 128 + signal if stopped."""
    return run(EVIDENCE, argv)


if __name__ == "__main__":
    sys.exit(main())
