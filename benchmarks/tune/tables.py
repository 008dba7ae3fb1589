"""Tables that are both printed on the terminal and shown on the page; and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as TerminalTable
from rich.text import Text

from profiles.report import Document, html


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with a row for each pipeline.

    Attributes:
      columns: the names of all columns; the first holds pipelines, the others numbers.
      rows: the cells of each row, one for each column.
      chosen: the index of the chosen pipeline's row; None where none is chosen.
      first_width: characters after which the terminal folds the first column; None where it does not fold it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    chosen: int | None = None
    first_width: int | None = None


def print_table(console: Console, table: Table) -> None:
    printed = TerminalTable(box=None, title=Text(table.title, style="bold"), title_justify="left", pad_edge=False)
    first, *others = table.columns
    printed.add_column(first, max_width=table.first_width)
    for column in others:
        printed.add_column(column, justify="right")
    for number, cells in enumerate(table.rows):
        printed.add_row(*map(Text, cells), style="bold" if number == table.chosen else "")
    console.print(printed)


def print_line(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, emoji=False)


def page(
    heading: str,
    document: Document[Any, Any],
    tables: Sequence[Table],
    sentences: Sequence[str],
    facts: Mapping[str, str],
) -> str:
    """Renders a page.

    Args:
      sentences: what the figures mean.
      facts: how the figures were measured, each under a short heading.
    """
    return (
        html.environment(Path(__file__).parent)
        .get_template("tune.html.j2")
        .render(heading=heading, document=document, tables=tables, sentences=sentences, facts=facts)
    )
