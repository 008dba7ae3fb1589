"""Plans hosts, cores, network, storage and caches for a training of many accelerators, by a simulation.

unstall capacity --images 1.3e6 --device emulated:h100-resnet50 --accelerators 64 --network 100gbit
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from unstall.benchmarks.capacity.parser import parser
from unstall.benchmarks.capacity.plan import read_plan
from unstall.benchmarks.lab.command import Command, run

COMMAND = Command(
    parser=parser,
    plan=read_plan,
    lab="benchmarks.capacity.measure:open_run",
    kind="benchmarks.capacity.report:KIND",
    exit_code=lambda document, results: 1 if results.missed else 0,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns 0; 1 if the simulation misses a small run; 2 for bad input, 3 if nothing could be measured, 128 + signal if
    stopped.
    """
    return run(COMMAND, argv)


if __name__ == "__main__":
    sys.exit(main())
