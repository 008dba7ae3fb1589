"""How far our own figures are off: loaders, models, edges and stages of known cost, found again.

unstall truth
unstall truth --only edges --only stages
unstall truth --only watching --pairs 20
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from unstall.benchmarks.lab.command import Command, run
from unstall.benchmarks.truth.parser import PARTS, PLANTED_PART, parser
from unstall.benchmarks.truth.plan import part_of, read

_LABS = {
    PLANTED_PART: "benchmarks.truth.measure:open_planted",
    "watching": "benchmarks.truth.measure:open_watching",
    "photos": "benchmarks.truth.photos:open_run",
    "gate": "benchmarks.truth.gate:open_run",
    "intervals": "benchmarks.truth.intervals:open_run",
    "verdicts": "benchmarks.truth.verdicts:open_run",
    "attributers": "benchmarks.truth.attributers:open_run",
}
COMMANDS = {
    part: Command(
        parser=partial(parser, part),
        plan=partial(read, part),
        lab=_LABS[part],
        kind="benchmarks.truth.report:KIND",
        exit_code=lambda document, results: int(results.exit_code),
        continues=part == "gate",
    )
    for part in PARTS
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0 where every figure is as near to the truth as promised; 1 where one is not; 4 where an interval is too wide to
      tell; 2 for bad input; 3 if nothing could be measured; 128 + signal if stopped.
    """
    part, words = part_of(sys.argv[1:] if argv is None else argv)
    return run(COMMANDS[part], words)


if __name__ == "__main__":
    sys.exit(main())
