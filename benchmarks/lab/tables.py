"""The tables of a command: on the terminal, and on a page of sentences and tables."""

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
    """A table with a row for each subject.

    Attributes:
      columns: the names of all columns; the first holds subjects, the others mostly numbers.
      rows: the cells of each row, one for each column.
      title: stands above the table.
      text: says on the page what the title is.
      chosen: the index of the row that stands out; None where none does.
      first_width: characters after which the terminal folds the first column; None where it does not fold it.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    text: str = ""
    chosen: int | None = None
    first_width: int | None = None


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: Sequence[str] = ("limit",)) -> TerminalTable:
    """Returns a table for the terminal; the first column and those of `words` are text, the others are numbers."""
    drawn = TerminalTable(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for number, column in enumerate(columns):
        text = number == 0 or column in words
        drawn.add_column(column, justify="left" if text else "right", no_wrap=not text)
    for row in rows:
        drawn.add_row(*map(Text, row))
    return drawn


def print_table(console: Console, table: Table) -> None:
    """Prints a table below its title, in bold what stands out."""
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
    sentences: Sequence[str],
    facts: Mapping[str, object],
    about: str = "",
    legend: Sequence[str] = (),
) -> str:
    """Renders a page: the sentences, the tables, what the columns mean, and what was left out.

    Args:
      heading: of the page.
      sentences: what the figures mean.
      facts: how the figures were measured, each under a short name.
      about: what was measured, in a few words; the data's name unless given.
      legend: what the columns mean.
    """
    return (
        html.environment(Path(__file__).parent)
        .get_template("tables.html.j2")
        .render(
            heading=heading,
            document=document,
            about=about,
            tables=tables,
            sentences=sentences,
            facts=facts,
            legend=legend,
        )
    )
