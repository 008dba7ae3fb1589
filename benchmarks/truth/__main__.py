"""How far our own figures are off: loaders, models, edges and stages of known cost, found again.

python -m benchmarks.truth
python -m benchmarks.truth --only edges --only stages
python -m benchmarks.truth --only watching --pairs 20
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.lab.command import Command, run
from benchmarks.truth import plan
from benchmarks.truth.plan import PLANTED_PART, Plan, part_of


def _command(
    parser: Callable[[], argparse.ArgumentParser],
    read_plan: Callable[[argparse.Namespace, Path], Plan],
    lab: str,
    *,
    continues: bool = False,
) -> Command:
    return Command(
        parser=parser,
        plan=read_plan,
        lab=lab,
        kind="benchmarks.truth.report:KIND",
        exit_code=lambda document, results: int(results.exit_code),
        continues=continues,
    )


COMMANDS = {
    PLANTED_PART: _command(plan.planted_parser, plan.read_planted, "benchmarks.truth.measure:open_planted"),
    "watching": _command(plan.watching_parser, plan.read_watching, "benchmarks.truth.measure:open_watching"),
    "photos": _command(plan.photos_parser, plan.read_photos, "benchmarks.truth.photos:open_run"),
    "gate": _command(plan.gate_parser, plan.read_gate, "benchmarks.truth.gate:open_run", continues=True),
    "intervals": _command(plan.intervals_parser, plan.read_intervals, "benchmarks.truth.intervals:open_run"),
    "verdicts": _command(plan.verdicts_parser, plan.read_verdicts, "benchmarks.truth.verdicts:open_run"),
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
