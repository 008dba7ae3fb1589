"""Derives from samples each peer's rate, and its ratio to the rate of our fastest loader that does the same work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unstall.benchmarks.evidence.peers.catalogue import Peer
from unstall.benchmarks.evidence.peers.equal_work import other_work_of
from unstall.benchmarks.evidence.peers.plan import Asked
from unstall.benchmarks.evidence.peers.samples import MeasuredPeer, MeasuredWork, Measurements
from unstall.profiles.report import Document
from unstall.profiles.statistics import Interval, geometric_mean, shared_ratio

PeersDocument = Document[Asked, Measurements]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerResult:
    """The result of one peer at one work.

    Attributes:
      other_work: how the peer's work differs from the reference's, in words; empty if it does not differ.
      images_per_sec: geometric mean over the rounds; None for a peer without samples, or whose work differs.
      ratio: images/sec divided by those of our fastest loader, over the rounds that both have; None where one of the
        two has no rate, or they have no round in common.
      interval: the ratio's 95 % interval; None where there are too few rounds.
    """

    peer: Peer
    measured: MeasuredPeer
    other_work: tuple[str, ...]
    images_per_sec: float | None
    ratio: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The peers that make their images in the same way; rows are compared within a group.

    Attributes:
      rendition: how the images are made; "" in a document of an earlier version.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkResult:
    """The results of all peers at one work.

    Attributes:
      images: number of images in an epoch.
      groups: the group with the fastest peer first.
      leads: at most one over loaders with our remedies, and one over loaders as their documentation has them.
    """

    work: str
    images: int
    groups: tuple[Group, ...]
    leads: tuple[Lead, ...]

    @property
    def peers(self) -> tuple[PeerResult, ...]:
        """The peers of all groups."""
        return tuple(result for group in self.groups for result in group.peers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of a run: one entry for each work at which a peer was measured."""

    works: tuple[WorkResult, ...]

    @property
    def only_ours(self) -> bool:
        """Whether no other library's loader was measured."""
        return all(result.peer.ours or result.peer.part for work in self.works for result in work.peers)


def derive(document: PeersDocument) -> Results:
    """Derives each peer's rate and ratio, and how its work differs from the reference's."""
    catalogue = {peer.name: peer for peer in document.plan.peers}
    return Results(works=tuple(_result_of(work, catalogue) for work in document.samples.works if work.peers))


def _result_of(work: MeasuredWork, catalogue: Mapping[str, Peer]) -> WorkResult:
    by_rendition: dict[str, list[MeasuredPeer]] = {}
    for measured in work.peers:
        by_rendition.setdefault(catalogue[measured.peer].renditions.get(work.work, ""), []).append(measured)
    groups = [_group(rendition, work, members, catalogue) for rendition, members in by_rendition.items()]
    groups.sort(key=lambda group: -(group.peers[0].images_per_sec or 0.0))
    return WorkResult(work=work.work, images=work.images, groups=tuple(groups), leads=_leads(groups))


def _group(rendition: str, work: MeasuredWork, members: Sequence[MeasuredPeer], catalogue: Mapping[str, Peer]) -> Group:
    other_work = {
        measured.peer: other_work_of(work.work, catalogue[measured.peer], measured, work.reference)
        for measured in members
    }
    rates = {
        measured.peer: geometric_mean([sample.images_per_sec for sample in measured.samples])
        for measured in members
        if measured.samples and not other_work[measured.peer]
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
                other_work=other_work[measured.peer],
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


def _leads(groups: Sequence[Group]) -> tuple[Lead, ...]:
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
        return ()
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
    return tuple(leads)


def ratio_to(measured: MeasuredPeer, ours: MeasuredPeer) -> tuple[float | None, Interval | None]:
    """Returns the ratio of a peer's images/sec to ours and its 95 % interval, over the rounds that both have."""
    rates, our_rates = (
        {sample.round: sample.images_per_sec for sample in samples} for samples in (measured.samples, ours.samples)
    )
    return shared_ratio(rates, our_rates)
