"""What the doctor prints and writes of its findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from benchmarks.doctor.folder import Folder
from benchmarks.doctor.results import TROUBLES, Examined, Finding, in_order
from pipeline.sources import Entry
from pipeline.text import shown

# Files that the terminal gets of each trouble; doctor.json names all.
_SHOWN_FILES, _SHOWN_LETTERS = 3, 60


def entries(examined: Sequence[Examined]) -> list[Entry]:
    """Returns the files that are to be left out."""
    return [
        Entry(path=one.path, reason=reason(in_order(one.findings)), bytes=one.bytes, sha256=one.sha256)
        for one in examined
        if one.quarantined
    ]


def reason(findings: Sequence[Finding]) -> str:
    """Returns why a file is to be left out, in one line."""
    quarantined = (one for one in findings if one.quarantined)
    return "; ".join(f"{one.trouble}: {shown(one.detail)}" for one in quarantined)


def document(folder: Folder, examined: Sequence[Examined], findings: Sequence[Finding]) -> dict[str, Any]:
    """Returns what `doctor.json` holds: every finding, no path but those below the folder."""
    return {
        "schema_version": 1,
        "folder": shown(folder.root.resolve().name),
        "classes": {shown(split): [shown(name) for name in names] for split, names in folder.classes.items()},
        "files": len(folder.files),
        "quarantined": sum(one.quarantined for one in examined),
        "stops": any(finding.stops for finding in findings),
        "findings": [
            {
                "path": shown(finding.path),
                "trouble": finding.trouble,
                "detail": shown(finding.detail),
                "stops": finding.stops,
                "quarantined": finding.quarantined,
            }
            for finding in findings
        ],
    }


def print_findings(console: Console, folder: Folder, findings: Sequence[Finding], seconds: float) -> None:
    """Prints a table of the troubles, the worst first, with the first files of each."""
    of_trouble: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        of_trouble[finding.trouble].append(finding)
    title = f"{len(folder.files):,} files in {shown(folder.root)}, examined in {seconds:.1f} s"
    console.print(Text(title, style="bold"), soft_wrap=True)
    if not findings:
        console.print("nothing is wrong", highlight=False)
        return
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("trouble", no_wrap=True)
    table.add_column("files", justify="right", no_wrap=True)
    table.add_column("first of them", overflow="fold")
    for trouble, found in of_trouble.items():
        stops = TROUBLES[trouble].stops
        lines = [_line(finding) for finding in found[:_SHOWN_FILES]]
        if len(found) > _SHOWN_FILES:
            lines.append(Text(f"and {len(found) - _SHOWN_FILES:,} more", style="dim"))
        mark = Text("stops" if stops else "", style="bold red")
        table.add_row(mark, Text(trouble, style="red" if stops else ""), f"{len(found):,}", Group(*lines))
    console.print(table)


def _line(finding: Finding) -> Text:
    detail = shown(finding.detail)
    short = detail if len(detail) <= _SHOWN_LETTERS else f"{detail[: _SHOWN_LETTERS - 1]}…"
    line = Text(f"{shown(finding.path)}  " if finding.path else "")
    return line.append(short, style="dim")


def said(examined: Sequence[Examined], findings: Sequence[Finding], skip_list: Path) -> str:
    """Returns the sentences that end the output: what stops a training, and where the list is."""
    stopping = {finding.path for finding in findings if finding.stops}
    by_hand = {finding.path for finding in findings if finding.stops and not finding.quarantined}
    listed = sum(one.quarantined for one in examined)
    first = f"{len(stopping):,} of these would stop a training." if stopping else "Nothing would stop a training."
    second = f" {listed:,} files to leave out are in {shown(skip_list)}: use --skip-list." if listed else ""
    third = f" {len(by_hand):,} must be mended by hand." if by_hand else ""
    return first + second + third
