"""Derives each peer's rate, and its ratio to that of our fastest loader that does the same work; and the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unstall.benchmarks.evidence.peers.catalogue import Peer
from unstall.benchmarks.evidence.peers.loaders.work import WORKS
from unstall.benchmarks.evidence.peers.plan import Asked
from unstall.benchmarks.evidence.peers.samples import MeasuredPeer, MeasuredWork, Measurements
from unstall.benchmarks.evidence.run import View
from unstall.benchmarks.lab.tables import Table
from unstall.profiles.report import Document
from unstall.profiles.statistics import Interval, geometric_mean, range_cell, shared_ratio

PeersDocument = Document[Asked, Measurements]

_COLUMNS = ("peer", "workers", "img/s", "to ours", "95 %", "1st s")
LEGEND = (
    "to ours: images/sec over those of our fastest loader under the same heading, round by round. LIBRARY:REMEDY: "
    "with every remedy that we know. 1st s: from making the loader to its first batch."
)
_ONLY_OURS = "No peer is here: no other library was measured."


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerResult:
    """The result of one peer at one work.

    Attributes:
      images_per_sec: geometric mean over the rounds; None for a peer without samples.
      ratio: images/sec divided by those of our fastest loader, over the rounds that both have; None where one of the
        two has no rate, or they have no round in common.
      interval: the ratio's 95 % interval; None where there are too few rounds.
    """

    peer: Peer
    measured: MeasuredPeer
    images_per_sec: float | None
    ratio: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The peers that make their images in the same way; rows are compared within a group.

    Attributes:
      rendition: how the images are made.
      ours: the name of our fastest loader, with which the peers are compared; None where none of ours has a rate.
      peers: the fastest peer first, peers without a rate last.
    """

    rendition: str
    ours: str | None
    peers: tuple[PeerResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Our fastest loader at a work, held against the fastest of other libraries' loaders.

    Attributes:
      ours, other: the two loaders' names.
      remedied: whether the other is the fastest of those with our remedies, or else of those as documented.
      rendition: how the other makes its images; "" where ours makes them in the same way.
      ratio, interval: our images/sec divided by the other's, and the 95 % interval.
    """

    ours: str
    other: str
    remedied: bool
    rendition: str
    ratio: float
    interval: Interval | None

    def __str__(self) -> str:
        given = "with our remedies" if self.remedied else "as its documentation has it"
        interval = f" ({range_cell(self.interval)})" if self.interval is not None else ""
        work = f"at other work: {self.rendition}" if self.rendition else "at the same work"
        return (
            f"{self.ours} has {self.ratio:.2f}{interval} times the rate of the fastest {given}, {self.other}, {work}."
        )


def view_of(document: PeersDocument) -> View:
    """Returns a table for each work, and how our fastest loader stands against the others."""
    works = [(work, groups_of(work, document.plan.peers)) for work in document.samples.works if work.peers]
    tables = [_table(work, groups) for work, groups in works]
    rows = [
        _row(work.work, group, result)
        for work, groups in works
        for group in groups
        for result in group.peers
        if result.images_per_sec is not None
    ]
    sentences = [f"{work.work}: {lead}" for work, groups in works for lead in leads_of(groups)]
    results = [result for _, groups in works for group in groups for result in group.peers]
    if all(result.peer.ours or result.peer.part for result in results):
        sentences.append(_ONLY_OURS)
    return View(tables=tables, rows=rows, sentences=sentences, notes=[*_notes(results), LEGEND])


def groups_of(work: MeasuredWork, peers: Sequence[Peer]) -> list[Group]:
    """Returns the groups of a work, that with the fastest peer first."""
    catalogue = {peer.name: peer for peer in peers}
    by_rendition: dict[str, list[MeasuredPeer]] = {}
    for measured in work.peers:
        by_rendition.setdefault(catalogue[measured.peer].renditions[work.work], []).append(measured)
    groups = [_group(rendition, members, catalogue) for rendition, members in by_rendition.items()]
    return sorted(groups, key=lambda group: -(group.peers[0].images_per_sec or 0.0))


def _group(rendition: str, members: Sequence[MeasuredPeer], catalogue: Mapping[str, Peer]) -> Group:
    rates = {
        measured.peer: geometric_mean([sample.images_per_sec for sample in measured.samples])
        for measured in members
        if measured.samples
    }
    ours = max(
        (measured for measured in members if measured.peer in rates and catalogue[measured.peer].ours),
        key=lambda measured: rates[measured.peer],
        default=None,
    )
    results = []
    for measured in members:
        ratio, interval = ratio_to(measured, ours) if ours is not None and measured.peer in rates else (None, None)
        results.append(
            PeerResult(
                peer=catalogue[measured.peer],
                measured=measured,
                images_per_sec=rates.get(measured.peer),
                ratio=ratio,
                interval=interval,
            )
        )
    return Group(
        rendition=rendition,
        ours=None if ours is None else ours.peer,
        peers=tuple(sorted(results, key=lambda result: -(result.images_per_sec or 0.0))),
    )


def leads_of(groups: Sequence[Group]) -> list[Lead]:
    """Holds our fastest loader against the fastest others, of those with our remedies and of those as documented."""
    rated = [
        (group, result)
        for group in groups
        for result in group.peers
        if result.images_per_sec is not None and not result.peer.part
    ]
    rated.sort(key=lambda each: -(each[1].images_per_sec or 0.0))
    fastest = next(((group, result) for group, result in rated if result.peer.ours), None)
    if fastest is None:
        return []
    our_group, ours = fastest
    leads = []
    for remedied in (True, False):
        others = ((group, each) for group, each in rated if not each.peer.ours and each.peer.remedied == remedied)
        group, other = next(others, (None, None))
        if group is None or other is None:
            continue
        ratio, interval = ratio_to(ours.measured, other.measured)
        if ratio is not None:
            leads.append(
                Lead(
                    ours=ours.peer.name,
                    other=other.peer.name,
                    remedied=remedied,
                    rendition="" if group is our_group else group.rendition,
                    ratio=ratio,
                    interval=interval,
                )
            )
    return leads


def ratio_to(measured: MeasuredPeer, ours: MeasuredPeer) -> tuple[float | None, Interval | None]:
    """Returns the ratio of a peer's images/sec to ours and its 95 % interval, over the rounds that both have."""
    rates, our_rates = (
        {sample.round: sample.images_per_sec for sample in samples} for samples in (measured.samples, ours.samples)
    )
    return shared_ratio(rates, our_rates)


def _table(work: MeasuredWork, groups: Sequence[Group]) -> Table:
    """Returns the table of a work, with a heading for each group."""
    rows: list[tuple[str, ...]] = []
    for group in groups:
        rows.append((group.rendition, *[""] * (len(_COLUMNS) - 1)))
        rows += [_cells(result, group.ours) for result in group.peers]
    title = f"{work.work}: {WORKS[work.work]}; {work.images:,} images"
    return Table(title=title, columns=_COLUMNS, rows=rows, words=("workers",))


def _cells(result: PeerResult, ours: str | None) -> tuple[str, ...]:
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


def _row(work: str, group: Group, result: PeerResult) -> dict[str, Any]:
    low, high = result.interval or (None, None)
    return {
        "work": work,
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
    }


def _notes(results: Sequence[PeerResult]) -> list[str]:
    """Returns what a reader of the rows must know, a line for each peer that needs one, and the versions."""
    texts: dict[str, list[str]] = {}
    for result in results:
        known = texts.setdefault(result.peer.name, [])
        known += [text for text in (result.peer.note, *result.measured.flags) if text and text not in known]
    versions = {" ".join(package) for result in results for package in [*result.measured.versions.items()][:1]}
    return [*(f"{name}: {'; '.join(known)}" for name, known in texts.items() if known), ", ".join(sorted(versions))]
