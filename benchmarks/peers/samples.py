"""What is measured of each peer: what its process saw of its images, and windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One window of a peer, of whole epochs.

    Attributes:
      round: from 0.
      epochs, images, batches: that the loader served in the window.
      wall_ns: from the first request to the last batch.
      first_batch_ns: from the first request to the first batch.
    """

    round: int
    epochs: int
    images: int
    batches: int
    wall_ns: int
    first_batch_ns: int

    @property
    def images_per_sec(self) -> float:
        return self.images / self.wall_ns * 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPeer:
    """What was measured of one peer at one work so far.

    Attributes:
      peer: its name.
      versions: of its packages; the first is the library's.
      workers: those chosen, in words.
      trials: images/sec of a short window, by workers.
      first_batch_s: from making the loader to its first batch, its worker processes included; None for a part of the
        work, which hands over no batches.
      survey: what the peer's process saw of one epoch; None for a part of the work.
      identity: what the process saw of two epochs of numbered images; None for a part of the work.
      flags: what a reader must doubt.
      samples: a window of each round; none of a peer whose work differs.
    """

    peer: str
    versions: Mapping[str, str]
    workers: str
    trials: Mapping[str, float]
    first_batch_s: float | None = None
    survey: Mapping[str, Any] | None = None
    identity: Mapping[str, Any] | None = None
    flags: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()

    @property
    def version(self) -> str:
        return next(iter(self.versions.values()), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWork:
    """What was measured of one work.

    Attributes:
      images: of an epoch.
      reference: the survey of the loader that the peers' work is compared with.
      peers: in the order of the plan, without those that are left out.
    """

    work: str
    images: int
    reference: Mapping[str, Any]
    peers: tuple[MeasuredPeer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured of all works, in the order of the plan."""

    works: tuple[MeasuredWork, ...]
