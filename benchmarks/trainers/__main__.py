"""Several trainers: replicas on one host by TensorFlow and JAX, and processes by JAX, compared with one trainer.

unstall trainers
unstall trainers --data photos/train --only one-jax,jax-processes,jax-processes-sharded
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from unstall.benchmarks.lab.command import Command, run
from unstall.benchmarks.trainers.parser import parser
from unstall.benchmarks.trainers.plan import read_plan

COMMAND = Command(
    parser=parser, plan=read_plan, lab="benchmarks.trainers.measure:open_run", kind="benchmarks.trainers.report:KIND"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0; 2 for bad input, 3 if nothing was measured, 128 + signal if stopped."""
    return run(COMMAND, argv)


if __name__ == "__main__":
    sys.exit(main())
