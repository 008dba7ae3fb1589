"""Measures other libraries' loaders and ours at the same work: each in its own process, in turns, in one run.

unstall peers --data photos/train
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from unstall.benchmarks.evidence.peers.catalogue import all_peers
from unstall.benchmarks.evidence.peers.parser import parser
from unstall.benchmarks.evidence.peers.plan import read_plan
from unstall.benchmarks.lab.command import Command, run

COMMAND = Command(
    parser=parser,
    plan=read_plan,
    lab="benchmarks.evidence.peers.measure:open_run",
    kind="benchmarks.evidence.peers.report:KIND",
    listing=lambda console: _list(console),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0, or 2 for bad input, 3 if nothing could be measured, 128 + signal if stopped."""
    return run(COMMAND, argv)


def _list(console: Console) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("peer", "work", "note"):
        table.add_column(column)
    for name, peer in all_peers().items():
        table.add_row(name, ", ".join(peer.functions), peer.note)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
