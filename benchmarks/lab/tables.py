"""The tables of a command: on the terminal, and on a page of sentences and tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as TerminalTable
from rich.text import Text

from unstall.profiles.report import Document, html


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with a row for each subject.

    Attributes:
      columns: the names of all columns; the first holds subjects.
      rows: the cells of each row, one for each column.
      title: stands above the table; empty for none.
      words: columns beside the first that hold text; all others hold numbers.
      chosen: the index of the row that stands out; None where none does.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    words: Collection[str] = ()
    chosen: int | None = None


def print_table(console: Console, table: Table) -> None:
    """Prints a table below its title. Text is folded where the terminal is narrow, numbers are not."""
    if table.title:
        console.print(Text(table.title, style="bold"))
    printed = TerminalTable(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for number, column in enumerate(table.columns):
        text = number == 0 or column in table.words
        if text:
            printed.add_column(Text(column), overflow="fold")
        else:
            printed.add_column(Text(column), justify="right", no_wrap=True)
    for number, cells in enumerate(table.rows):
        printed.add_row(*map(Text, cells), style="bold" if number == table.chosen else "")
    console.print(printed)


def print_end(
    console: Console, document: Document[Any, Any], *, sentences: Sequence[str] = (), legend: Sequence[str] = ()
) -> None:
    """Prints what follows the tables: what the figures mean, what the columns mean, and what was left out."""
    for sentence in sentences:
        console.print(Text(sentence))
    for line in legend:
        console.print(Text(line, style="dim"))
    for left_out in document.left_out:
        line_out = Text.assemble(("left out", "yellow"), f" {left_out.who}: {left_out.reason}")
        console.print(line_out, soft_wrap=True)


def page(
    heading: str,
    document: Document[Any, Any],
    *,
    tables: Sequence[Table],
    facts: Mapping[str, object],
    sentences: Sequence[str] = (),
    notes: Sequence[str] = (),
    about: str = "",
    legend: Sequence[str] = (),
) -> str:
    """Renders a page: the answer, the tables, what they mean, and what was left out.

    Args:
      heading: of the page.
      facts: how the figures were measured, each under a short name.
      sentences: the answer, above the tables, of a command without a first screen.
      notes: what the figures mean, below the tables, of a command whose first screen has the answer.
      about: what was measured, in a few words; the data's name unless given.
      legend: what the columns mean.
    """
    return html.template(Path(__file__).with_name("tables.html.j2")).render(
        heading=heading,
        document=document,
        about=about,
        tables=tables,
        sentences=sentences,
        notes=notes,
        facts=facts,
        legend=legend,
    )
