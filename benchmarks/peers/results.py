"""What follows from a run: each peer's rate, and its ratio to the fastest of ours at the same work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.peers.catalogue import Peer
from benchmarks.peers.equal_work import other_work_of
from benchmarks.peers.plan import Asked
from benchmarks.peers.samples import MeasuredPeer, MeasuredWork, Measurements
from profiles.report import Document
from profiles.statistics import Interval, geometric_mean, ratio_interval

PeersDocument = Document[Asked, Measurements]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerResult:
    """A peer at one work.

    Attributes:
      other_work: in what its work differs from the reference's, in words; empty if in nothing.
      images_per_sec: geometric mean over the rounds; None of a peer without samples, or with other work.
      ratio: images/sec over those of ours, in the rounds that both have; None where there are none.
      interval: the ratio's 95 % interval; None where there are too few rounds.
    """

    peer: Peer
    measured: MeasuredPeer
    other_work: tuple[str, ...]
    images_per_sec: float | None
    ratio: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkResult:
    """A work.

    Attributes:
      images: of an epoch.
      ours: the fastest of ours, which the others are held against; None where none of ours was measured.
      peers: the fastest first, those without a rate last.
    """

    work: str
    images: int
    ours: str | None
    peers: tuple[PeerResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What follows from a document: the works at which a peer was measured."""

    works: tuple[WorkResult, ...]

    @property
    def only_ours(self) -> bool:
        """Whether no other library is among what was measured."""
        return all(result.peer.ours or result.peer.part for work in self.works for result in work.peers)


def derive(document: PeersDocument) -> Results:
    """Derives rates and ratios, and whose work differs."""
    catalogue = {peer.name: peer for peer in document.plan.peers}
    return Results(works=tuple(_result_of(work, catalogue) for work in document.samples.works if work.peers))


def _result_of(work: MeasuredWork, catalogue: Mapping[str, Peer]) -> WorkResult:
    other_work = {measured.peer: other_work_of(work.work, measured, work.reference) for measured in work.peers}
    rates = {
        measured.peer: geometric_mean([sample.images_per_sec for sample in measured.samples])
        for measured in work.peers
        if measured.samples and not other_work[measured.peer]
    }
    ours = max(
        (measured for measured in work.peers if measured.peer in rates and catalogue[measured.peer].ours),
        key=lambda measured: rates[measured.peer],
        default=None,
    )
    results = []
    for measured in work.peers:
        ratio, interval = ratio_to(measured, ours) if ours is not None and measured.peer in rates else (None, None)
        results.append(
            PeerResult(
                peer=catalogue[measured.peer],
                measured=measured,
                other_work=other_work[measured.peer],
                images_per_sec=rates.get(measured.peer),
                ratio=ratio,
                interval=interval,
            )
        )
    return WorkResult(
        work=work.work,
        images=work.images,
        ours=None if ours is None else ours.peer,
        peers=tuple(sorted(results, key=lambda result: -(result.images_per_sec or 0.0))),
    )


def ratio_to(measured: MeasuredPeer, ours: MeasuredPeer) -> tuple[float | None, Interval | None]:
    """Returns images/sec over ours and the ratio's 95 % interval, of the rounds that both have."""
    rates, our_rates = (
        {sample.round: sample.images_per_sec for sample in samples} for samples in (measured.samples, ours.samples)
    )
    rounds = sorted(rates.keys() & our_rates.keys())
    if not rounds:
        return None, None
    return ratio_interval([rates[number] for number in rounds], [our_rates[number] for number in rounds])
