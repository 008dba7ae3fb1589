"""The raw samples of each peer: the form of what its process served, and timed windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unstall.benchmarks.evidence.peers.loaders.work import SIDE

_SHAPES = ((SIDE, SIDE, 3), (3, SIDE, SIDE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The form of what a peer served in one epoch.

    Attributes:
      first_batch_s: from making the loader to its first batch, the start of worker processes included.
      images: number of images.
      dtypes: the types of the batches.
      shapes: the shapes of single images.
      full_batches: whether all batches had the requested size, except for at most one shorter batch.
      labels: number of images of each label.
    """

    first_batch_s: float
    images: int
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    full_batches: bool
    labels: Mapping[int, int]

    def differences(self, labels: Mapping[int, int], dtype: str) -> list[str]:
        """Returns how the epoch differs from what was asked for, in words.

        That its pixels are those that they should be is proven by tests, which compare them.

        Args:
          labels: number of images of each label.
          dtype: the type of the batches.
        """
        differing, images = [], sum(labels.values())
        if self.images != images:
            differing.append(f"{self.images:,} images an epoch, not {images:,}")
        if not self.full_batches:
            differing.append("batches of other sizes")
        differing += [f"images of {'x'.join(map(str, shape))}" for shape in self.shapes if shape not in _SHAPES]
        differing += [f"{each}, not {dtype}" for each in self.dtypes if each != dtype]
        if self.labels != labels:
            differing.append(f"labels {_counts(self.labels)}, not {_counts(labels)}")
        return differing


def _counts(labels: Mapping[int, int]) -> str:
    listed = ", ".join(f"{label}: {count:,}" for label, count in list(labels.items())[:4])
    return f"{listed}, ..." if len(labels) > 4 else listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One window of a peer, of whole epochs.

    Attributes:
      round: number of the round, from 0.
      epochs, images, batches: how many the loader served in the window.
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
      peer: the peer's name.
      versions: the version of each package; the first package is the library.
      workers: the chosen workers, in words.
      trials: images/sec of a short window, for each choice of workers in words.
      first_batch_s: from making the loader to its first batch; None for a part of the work, which serves no batches.
      flags: warnings for the reader: choices of workers that failed, or processes that kept using CPU.
      samples: one window for each round.
    """

    peer: str
    versions: Mapping[str, str]
    workers: str
    trials: Mapping[str, float]
    first_batch_s: float | None = None
    flags: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWork:
    """What was measured of one work.

    Attributes:
      images: number of images in an epoch.
      peers: in the order of the plan, without those that are left out.
    """

    work: str
    images: int
    peers: tuple[MeasuredPeer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured of all works, in the order of the plan."""

    works: tuple[MeasuredWork, ...]
