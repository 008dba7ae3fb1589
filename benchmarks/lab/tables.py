"""Draws the tables of commands whose rows end in what limits them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Returns a table; the first column and `limit` are text, the others are numbers."""
    drawn = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for number, column in enumerate(columns):
        text = number == 0 or column == "limit"
        drawn.add_column(column, justify="left" if text else "right", no_wrap=not text)
    for row in rows:
        drawn.add_row(*map(Text, row))
    return drawn
