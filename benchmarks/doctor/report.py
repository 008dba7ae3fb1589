"""The report of an examination: the results derived from its document, what the terminal prints, and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from unstall.benchmarks.doctor.plan import SKIP_LIST, Asked
from unstall.benchmarks.doctor.results import TROUBLES, Examination, Finding, in_order
from unstall.profiles.report import Document, Kind, ScreenLine, html, print_lines
from unstall.text import printable

# The most files that the table names for each trouble; results.json names all.
_MOST_FILES = 3
# The most characters of a detail that the terminal prints.
_MOST_CHARACTERS = 60

DoctorDocument = Document[Asked, Examination]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of an examination.

    Attributes:
      findings: of files and of the folder, the worst first.
    """

    findings: tuple[Finding, ...]

    @property
    def by_trouble(self) -> dict[str, list[Finding]]:
        groups: dict[str, list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault(finding.trouble, []).append(finding)
        return groups

    @property
    def stops(self) -> bool:
        """Whether something would stop a training."""
        return any(finding.stops for finding in self.findings)

    @property
    def quarantined(self) -> int:
        """The number of files that are to be left out."""
        return len({finding.path for finding in self.findings if finding.quarantined})

    @property
    def conclusion(self) -> str:
        """What stops a training, and what can be done, in one to three sentences."""
        stopping = {finding.path for finding in self.findings if finding.stops}
        by_hand = {finding.path for finding in self.findings if finding.stops and not finding.quarantined}
        first = f"{len(stopping):,} of these would stop a training." if stopping else "Nothing would stop a training."
        second = f" {self.quarantined:,} files to leave out are in {SKIP_LIST}: use --skip-list."
        third = f" {len(by_hand):,} must be mended by hand."
        return first + second * bool(self.quarantined) + third * bool(by_hand)


def derive(document: DoctorDocument) -> Results:
    """Collects all findings and sorts them, the worst first."""
    examination = document.samples
    of_files = (finding for file in examination.files for finding in file.findings)
    return Results(findings=tuple(in_order([*of_files, *examination.findings])))


def _copies(document: DoctorDocument, results: Results) -> dict[str, Any]:
    return {
        "files": document.samples.examined,
        "quarantined": results.quarantined,
        "stops": results.stops,
        "storage": None if document.samples.storage is None else list(document.samples.storage.sentences()),
        "findings": _rows(results),
    }


def _rows(results: Results) -> list[Mapping[str, Any]]:
    return [
        {
            "path": printable(finding.path),
            "trouble": finding.trouble,
            "detail": printable(finding.detail),
            "stops": finding.stops,
            "quarantined": finding.quarantined,
        }
        for finding in results.findings
    ]


def _page(document: DoctorDocument, results: Results) -> str:
    return html.template(Path(__file__).with_name("doctor.html.j2")).render(
        document=document, results=results, troubles=TROUBLES, shown_files=_MOST_FILES
    )


def _print(console: Console, document: DoctorDocument, results: Results) -> None:
    """Prints a table of the troubles, the worst first, with the first files of each."""
    examination = document.samples
    folder = printable(document.plan.folder)
    title = f"{examination.examined:,} files in {folder}, examined in {examination.seconds:.1f} s"
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print()
    verdict = "STOPS" if results.stops else "FINDINGS" if results.findings else "HEALTHY"
    healthy = "" if results.findings else "nothing is wrong. "
    print_lines(console, [ScreenLine(label=verdict, text=f"{healthy}{results.conclusion}")])
    if results.findings:
        console.print()
        console.print(_table(results))
    if examination.storage is not None:
        console.print("\n".join(("", *examination.storage.sentences())))


def _table(results: Results) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("trouble", no_wrap=True)
    table.add_column("files", justify="right", no_wrap=True)
    table.add_column("first of them", overflow="fold")
    for trouble, findings in results.by_trouble.items():
        stops = TROUBLES[trouble].stops
        lines = [_line(finding) for finding in findings[:_MOST_FILES]]
        if len(findings) > _MOST_FILES:
            lines.append(Text(f"and {len(findings) - _MOST_FILES:,} more", style="dim"))
        mark = Text("stops" if stops else "", style="bold red")
        table.add_row(mark, Text(trouble, style="red" if stops else ""), f"{len(findings):,}", Group(*lines))
    return table


def _line(finding: Finding) -> Text:
    detail = printable(finding.detail)
    short = detail if len(detail) <= _MOST_CHARACTERS else f"{detail[: _MOST_CHARACTERS - 1]}…"
    line = Text(f"{printable(finding.path)}  " if finding.path else "")
    return line.append(short, style="dim")


KIND = Kind(plan=Asked, samples=Examination, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows)
