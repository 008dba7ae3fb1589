"""Prints what peers came to: a table a work, and who was left out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.peers.measure import LeftOut, Row, work_text
from profiles.statistics import Interval, geometric_mean, range_cell, ratio_interval


def ours_of(rows: Sequence[Row]) -> Row | None:
    """Returns the fastest of ours, which the others are held against."""
    ours = [row for row in rows if row.peer.ours and row.samples and not row.other_work]
    return max(ours, key=lambda row: geometric_mean(row.rates), default=None)


def ratio_to(row: Row, ours: Row | None) -> tuple[float, Interval | None] | None:
    """Returns the row's images/sec over ours and its 95 % interval, of the rounds that both have; None without any."""
    if ours is None or row.other_work:
        return None
    theirs = {sample["round"]: rate for sample, rate in zip(row.samples, row.rates, strict=True)}
    own = {sample["round"]: rate for sample, rate in zip(ours.samples, ours.rates, strict=True)}
    rounds = sorted(theirs.keys() & own.keys())
    if not rounds:
        return None
    return ratio_interval([theirs[number] for number in rounds], [own[number] for number in rounds])


def print_rows(console: Console, work: str, images: int, rows: Sequence[Row]) -> None:
    """Prints the table of one work, the fastest first, those that did other work last."""
    ours = ours_of(rows)
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in ("peer", "workers"):
        table.add_column(column, no_wrap=True)
    for column in ("img/s", "to ours", "95 %", "1st s"):
        table.add_column(column, justify="right", no_wrap=True)
    in_order = sorted(rows, key=_order)
    for row in in_order:
        table.add_row(*_cells(row, ours))
    console.print()
    console.print(Text(f"{work_text(work)}; {images:,} images", style="bold"))
    console.print(table)
    for row in in_order:
        console.print(Text(f"{row.peer.name} {row.version}{_note(row)}", style="dim"))
    if ours is not None:
        said = f"to ours: images/sec over those of {ours.peer.name}, round by round."
    else:
        said = "to ours: none, as none of ours was measured."
    console.print(Text(f"{said} 1st s: from making the loader to its first batch.", style="dim"))


def _order(row: Row) -> tuple[bool, float]:
    return bool(row.other_work) or not row.samples, -geometric_mean(row.rates) if row.samples else 0.0


def _cells(row: Row, ours: Row | None) -> tuple[str, ...]:
    name, first = row.peer.name, "-" if row.first_batch_s is None else f"{row.first_batch_s:.2f}"
    if row.other_work:
        return name, row.workers, "-", "-", "-", first
    rate = f"{geometric_mean(row.rates):,.0f}" if row.samples else "-"
    ratio = ratio_to(row, ours)
    shown, interval = "-", "-"
    if ratio is not None:
        shown = f"{ratio[0]:.2f}"
        interval = "-" if row is ours else range_cell(ratio[1])
    return name, row.workers, rate, shown, interval, first


def _note(row: Row) -> str:
    other = f"other work: {', '.join(row.other_work)}" if row.other_work else ""
    note = "; ".join(part for part in (other, row.peer.note, *row.flags) if part)
    return f": {note}" if note else ""


def print_left_out(console: Console, left_out: Sequence[LeftOut]) -> None:
    """Prints each peer that is missing once, with the reason."""
    works: dict[tuple[str, str], list[str]] = {}
    for one in left_out:
        works.setdefault((one.name, one.reason), []).append(one.work)
    if works:
        console.print()
    for (name, reason), of in works.items():
        console.print(Text.assemble(("left out", "yellow"), f" {name} ({', '.join(of)}): {reason}"), soft_wrap=True)
