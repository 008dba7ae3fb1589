"""Prints what peers came to: a table a work, and who was left out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.peers.measure import LeftOut, PeerResult, work_text
from profiles.statistics import Interval, geometric_mean, range_cell, ratio_interval


def ours_of(results: Sequence[PeerResult]) -> PeerResult | None:
    """Returns the fastest of ours, which the others are held against."""
    ours = [result for result in results if result.peer.ours and result.samples and not result.other_work]
    return max(ours, key=lambda result: geometric_mean(result.rates), default=None)


def ratio_to(result: PeerResult, ours: PeerResult | None) -> tuple[float, Interval | None] | None:
    """Returns images/sec over ours and its 95 % interval, of the rounds that both have; None where there are none."""
    if ours is None or result.other_work:
        return None
    theirs = {sample["round"]: rate for sample, rate in zip(result.samples, result.rates, strict=True)}
    own = {sample["round"]: rate for sample, rate in zip(ours.samples, ours.rates, strict=True)}
    rounds = sorted(theirs.keys() & own.keys())
    if not rounds:
        return None
    return ratio_interval([theirs[number] for number in rounds], [own[number] for number in rounds])


def print_results(console: Console, work: str, images: int, results: Sequence[PeerResult]) -> None:
    """Prints the table of a work, the fastest peer first, those that did other work last."""
    ours = ours_of(results)
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in ("peer", "workers"):
        table.add_column(column, no_wrap=True)
    for column in ("img/s", "to ours", "95 %", "1st s"):
        table.add_column(column, justify="right", no_wrap=True)
    in_order = sorted(results, key=_order)
    for result in in_order:
        table.add_row(*_cells(result, ours))
    console.print()
    console.print(Text(f"{work_text(work)}; {images:,} images", style="bold"))
    console.print(table)
    for result in in_order:
        console.print(Text(f"{result.peer.name} {result.version}{_note(result)}", style="dim"))
    if ours is not None:
        held_against = f"images/sec over those of {ours.peer.name}, round by round."
    else:
        held_against = "none, as none of ours was measured."
    console.print(Text(f"to ours: {held_against} 1st s: from making the loader to its first batch.", style="dim"))


def _order(result: PeerResult) -> tuple[bool, float]:
    return bool(result.other_work) or not result.samples, -geometric_mean(result.rates) if result.samples else 0.0


def _cells(result: PeerResult, ours: PeerResult | None) -> tuple[str, ...]:
    name, first = result.peer.name, "-" if result.first_batch_s is None else f"{result.first_batch_s:.2f}"
    if result.other_work:
        return name, result.workers, "-", "-", "-", first
    rate = f"{geometric_mean(result.rates):,.0f}" if result.samples else "-"
    ratio = ratio_to(result, ours)
    ratio_text, interval = "-", "-"
    if ratio is not None:
        ratio_text = f"{ratio[0]:.2f}"
        interval = "-" if result is ours else range_cell(ratio[1])
    return name, result.workers, rate, ratio_text, interval, first


def _note(result: PeerResult) -> str:
    other = f"other work: {', '.join(result.other_work)}" if result.other_work else ""
    note = "; ".join(part for part in (other, result.peer.note, *result.flags) if part)
    return f": {note}" if note else ""


def print_left_out(console: Console, left_out: Sequence[LeftOut]) -> None:
    """Prints each peer that is missing once, with the reason."""
    works: dict[tuple[str, str], list[str]] = {}
    for peer in left_out:
        works.setdefault((peer.name, peer.reason), []).append(peer.work)
    if works:
        console.print()
    for (name, reason), of in works.items():
        console.print(Text.assemble(("left out", "yellow"), f" {name} ({', '.join(of)}): {reason}"), soft_wrap=True)
