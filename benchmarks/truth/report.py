"""The document of `truth`: the sections of its groups, on the terminal and on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as TerminalTable
from rich.text import Text

from unstall.benchmarks.truth.parser import PARTS, PLANTED_PART
from unstall.benchmarks.truth.plan import Asked
from unstall.benchmarks.truth.results import Results, TruthDocument, derive
from unstall.benchmarks.truth.samples import Measurements
from unstall.benchmarks.truth.sections import Table, sections
from unstall.profiles.report import Kind, encode, html

_HEADING = "How far our own figures are off"


def _print(console: Console, document: TruthDocument, results: Results) -> None:
    for section in sections(document, results):
        if section.name:
            console.print()
            console.print(Text.assemble((section.name, "bold"), f": {section.heading}"))
        for line in section.before:
            console.print(line)
        for table in section.tables:
            _print_table(console, table)
        for line in section.notes:
            console.print(line)
    console.print(f"\n{results.conclusion}")


def _print_table(console: Console, table: Table) -> None:
    title = Text(table.title, style="bold") if table.title else None
    printed = TerminalTable(box=None, padding=(0, table.gap, 0, 0), title=title, title_justify="left")
    for number, column in enumerate(table.columns):
        printed.add_column(column, justify="left" if number in table.words else "right")
    for row, cells in enumerate(table.rows):
        styles = ["bold red" if (row, column) in table.wrong else "" for column in range(len(cells))]
        printed.add_row(*(Text(cell, style=style) for cell, style in zip(cells, styles, strict=True)))
    console.print(printed)


def _page(document: TruthDocument, results: Results) -> str:
    part = document.plan.part
    return html.template(Path(__file__).with_name("truth.html.j2")).render(
        heading=_HEADING if part == PLANTED_PART else PARTS[part].text,
        document=document,
        sections=list(sections(document, results)),
        conclusion=results.conclusion,
    )


def _copies(document: TruthDocument, results: Results) -> dict[str, Any]:
    return {"conclusion": results.conclusion, "checks": results.checks}


def _rows(results: Results) -> list[dict[str, Any]]:
    rows = []
    for check in results.checks:
        fields = encode(check)
        low, high = fields.pop("interval") or (None, None)
        bias = fields.pop("bias") or {}
        fields |= {"low": low, "high": high, "bias": bias.get("mean"), "within": bias.get("within")}
        rows.append(fields)
    return rows


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows)
