"""Measures other libraries' loaders and ours at the same work: each in its own process, in turns, in one run.

python -m benchmarks.evidence.peers --data photos/train
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from unstall.benchmarks.evidence.peers.catalogue import all_peers
from unstall.benchmarks.evidence.peers.measure import open_run
from unstall.benchmarks.evidence.peers.plan import parser, read_plan
from unstall.benchmarks.evidence.peers.results import view_of
from unstall.benchmarks.evidence.run import Evidence, run
from unstall.benchmarks.lab.tables import Table, print_table

EVIDENCE = Evidence(parser=parser, plan=read_plan, lab=open_run, view=view_of, listing=lambda console: _list(console))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0, or 2 for bad input, 3 if nothing could be measured, 128 + signal if stopped."""
    return run(EVIDENCE, argv)


def _list(console: Console) -> None:
    rows = [(name, ", ".join(peer.functions), peer.note) for name, peer in all_peers().items()]
    print_table(console, Table(columns=("peer", "work", "note"), rows=rows, words=("work", "note")))


if __name__ == "__main__":
    sys.exit(main())
