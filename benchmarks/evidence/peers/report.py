"""Renders the document of a run: for each work a table of its peers, on the terminal and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unstall.benchmarks.evidence.peers.plan import Asked
from unstall.benchmarks.evidence.peers.results import (
    Group,
    Lead,
    PeerResult,
    PeersDocument,
    Results,
    WorkResult,
    derive,
)
from unstall.benchmarks.evidence.peers.samples import Measurements
from unstall.benchmarks.evidence.peers.works import WORKS
from unstall.benchmarks.lab.tables import print_end
from unstall.profiles.report import Kind, html
from unstall.profiles.statistics import range_cell

_NAMES, _NUMBERS = ("peer", "workers"), ("img/s", "to ours", "95 %", "1st s")
LEGEND = (
    "to ours: images/sec over those of our fastest loader under the same heading, round by round. LIBRARY:REMEDY: "
    "with every remedy that we know. 1st s: from making the loader to its first batch."
)
_ONLY_OURS = "No peer is here: no other library was measured."


def _copies(document: PeersDocument, results: Results) -> dict[str, Any]:
    return {
        "works": {work.work: _about(work) for work in results.works},
        "results": _all_rows(results),
    }


def _about(work: WorkResult) -> dict[str, Any]:
    leads = [asdict(lead) for lead in work.leads]
    return {"does": WORKS[work.work], "images": work.images, "leads": leads}


def _rows(results: Results) -> list[Mapping[str, Any]]:
    return [row for row in _all_rows(results) if row["images_per_sec"] is not None]


def _all_rows(results: Results) -> list[dict[str, Any]]:
    return [_flat(work, group, result) for work in results.works for group in work.groups for result in group.peers]


def _flat(work: WorkResult, group: Group, result: PeerResult) -> dict[str, Any]:
    low, high = result.interval or (None, None)
    return {
        "work": work.work,
        "rendition": group.rendition,
        "peer": result.peer.name,
        "remedied": result.peer.remedied,
        "versions": dict(result.measured.versions),
        "workers": result.measured.workers,
        "images_per_sec": result.images_per_sec,
        "ours": group.ours,
        "ratio_to_ours": result.ratio,
        "ratio_low": low,
        "ratio_high": high,
        "first_batch_s": result.measured.first_batch_s,
        "equal_work": not result.peer.part and not result.other_work,
        "other_work": "; ".join(result.other_work),
    }


def _print(console: Console, document: PeersDocument, results: Results) -> None:
    """Prints the table of each work, who was left out, and whether another library was measured."""
    for work in results.works:
        _print_work(console, work)
    if document.left_out:
        console.print()
    print_end(console, document)
    if results.only_ours:
        console.print(f"\n{_ONLY_OURS}")


def _print_work(console: Console, work: WorkResult) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in _NAMES:
        table.add_column(column, no_wrap=True)
    for column in _NUMBERS:
        table.add_column(column, justify="right", no_wrap=True)
    for group in work.groups:
        table.add_row(Text(group.rendition, style="bold"))
        for result in group.peers:
            table.add_row(*map(Text, cells(result, group.ours)))
    console.print()
    console.print(Text(title(work), style="bold"))
    console.print(table)
    for text in notes(work):
        console.print(Text(text, style="dim"))
    console.print(Text(LEGEND, style="dim"))
    for lead in work.leads:
        console.print(Text(sentence(lead)))


def title(work: WorkResult) -> str:
    """Returns what a work is, and how many images an epoch of it has."""
    return f"{work.work}: {WORKS[work.work]}; {work.images:,} images"


def cells(result: PeerResult, ours: str | None) -> tuple[str, ...]:
    """Returns the cells of a peer's row, for the terminal and for the page; `-` stands for a missing value."""
    first_batch_s = result.measured.first_batch_s
    compared = result.ratio is not None and result.peer.name != ours
    return (
        result.peer.name,
        result.measured.workers,
        "-" if result.images_per_sec is None else f"{result.images_per_sec:,.0f}",
        "-" if result.ratio is None else f"{result.ratio:.2f}",
        range_cell(result.interval) if compared else "-",
        "-" if first_batch_s is None else f"{first_batch_s:.2f}",
    )


def notes(work: WorkResult) -> list[str]:
    """Returns what a reader of a work's rows must know, a line for each peer that needs one, and the versions."""
    lines = []
    for result in work.peers:
        other_work = f"other work: {', '.join(result.other_work)}" if result.other_work else ""
        texts = [text for text in (other_work, result.peer.note, *result.measured.flags) if text]
        if texts:
            lines.append(f"{result.peer.name}: {'; '.join(texts)}")
    versions = {" ".join(package) for result in work.peers for package in [*result.measured.versions.items()][:1]}
    return [*lines, ", ".join(sorted(versions))]


def sentence(lead: Lead) -> str:
    """Returns a lead in words."""
    given = "with our remedies" if lead.remedied else "as its documentation has it"
    interval = f" ({range_cell(lead.interval)})" if lead.interval is not None else ""
    work = f"at other work: {lead.rendition}" if lead.rendition else "at the same work"
    return f"{lead.ours} has {lead.ratio:.2f}{interval} times the rate of the fastest {given}, {lead.other}, {work}."


def _page(document: PeersDocument, results: Results) -> str:
    return html.template(Path(__file__).with_name("peers.html.j2")).render(
        document=document,
        works=results.works,
        columns=(*_NAMES, *_NUMBERS),
        title=title,
        cells=cells,
        notes=notes,
        legend=LEGEND,
        sentence=sentence,
        only_ours=_ONLY_OURS if results.only_ours else None,
    )


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows)
