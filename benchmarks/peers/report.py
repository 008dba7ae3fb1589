"""Renders the document of a run: for each work a table of its peers, on the terminal and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.peers.loaders.work import WORKS
from benchmarks.peers.plan import Asked
from benchmarks.peers.results import PeerResult, PeersDocument, Results, WorkResult, derive
from benchmarks.peers.samples import Measurements
from profiles.report import Kind, html
from profiles.statistics import range_cell

_NAMES, _NUMBERS = ("peer", "workers"), ("img/s", "to ours", "95 %", "1st s")
_ONLY_OURS = "No peer is here: no other library was measured."


def _copies(document: PeersDocument, results: Results) -> dict[str, Any]:
    return {
        "works": {work.work: {"does": WORKS[work.work], "images": work.images} for work in results.works},
        "results": [_flat(work, result) for work in results.works for result in work.peers],
    }


def _rows(results: Results) -> list[Mapping[str, Any]]:
    return [_flat(work, result) for work in results.works for result in work.peers if result.images_per_sec is not None]


def _flat(work: WorkResult, result: PeerResult) -> dict[str, Any]:
    low, high = result.interval or (None, None)
    return {
        "work": work.work,
        "peer": result.peer.name,
        "version": result.measured.version,
        "workers": result.measured.workers,
        "images_per_sec": result.images_per_sec,
        "ours": work.ours,
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
    for left_out in document.left_out:
        line = Text.assemble(("left out", "yellow"), f" {left_out.who}: {left_out.reason}")
        console.print(line, soft_wrap=True)
    if results.only_ours:
        console.print(f"\n{_ONLY_OURS}", highlight=False)


def _print_work(console: Console, work: WorkResult) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in _NAMES:
        table.add_column(column, no_wrap=True)
    for column in _NUMBERS:
        table.add_column(column, justify="right", no_wrap=True)
    for result in work.peers:
        table.add_row(*map(Text, cells(result, work.ours)))
    console.print()
    console.print(Text(title(work), style="bold"))
    console.print(table)
    for result in work.peers:
        console.print(Text(note(result), style="dim"))
    console.print(Text(legend(work), style="dim"))


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


def note(result: PeerResult) -> str:
    """Returns a peer's name and version, and what a reader of the peer's row must know."""
    other_work = f"other work: {', '.join(result.other_work)}" if result.other_work else ""
    notes = "; ".join(text for text in (other_work, result.peer.note, *result.measured.flags) if text)
    return f"{result.peer.name} {result.measured.version}{f': {notes}' if notes else ''}"


def legend(work: WorkResult) -> str:
    """Returns what the columns of a table mean."""
    if work.ours is not None:
        held_against = f"images/sec over those of {work.ours}, round by round."
    else:
        held_against = "none, as none of ours was measured."
    return f"to ours: {held_against} 1st s: from making the loader to its first batch."


def _page(document: PeersDocument, results: Results) -> str:
    return (
        html.environment(Path(__file__).parent)
        .get_template("peers.html.j2")
        .render(
            document=document,
            works=results.works,
            columns=(*_NAMES, *_NUMBERS),
            title=title,
            cells=cells,
            note=note,
            legend=legend,
            only_ours=_ONLY_OURS if results.only_ours else None,
        )
    )


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows)
