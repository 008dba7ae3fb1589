"""What is measured of each peer: what its process saw of its images, and windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What one epoch of a peer was: what another loader must equal to have done the same work.

    Attributes:
      first_batch_s: from making the loader to its first batch, its worker processes included.
      images: of the epoch.
      dtype, shape: of the last batch, and of one of its images.
      full_batches: whether all batches but one, which may be short, had the size that was asked for.
      range: the least and the greatest value of a pixel, as served.
      mean, std: of each channel, of values from 0 to 1.
      labels: images of each label.
      class_means: mean of the pixels of each label's images, of values from 0 to 1.
    """

    first_batch_s: float
    images: int
    dtype: str
    shape: tuple[int, ...]
    full_batches: bool
    range: tuple[float, float]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    labels: Mapping[str, int]
    class_means: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which image was which in two epochs of a peer whose labels were the numbers of its images.

    Attributes:
      images: of an epoch.
      once: whether both epochs together had each image twice.
      served, distinct: images of both epochs, and how many different ones.
      shuffled: whether the second epoch had another order than that of the numbers.
      changed_ratio: part of the images that differed between the epochs.
      flipped_ratio: part of the images that were nearer to their photo's mirror image.
      pairing: correlation of the images' brightness with that of the photos whose numbers they bear.
    """

    images: int
    once: bool
    served: int
    distinct: int
    shuffled: bool
    changed_ratio: float
    flipped_ratio: float
    pairing: float


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
      survey: what the peer's process saw of one epoch; None for a part of the work.
      identity: what the process saw of two epochs of numbered images; None for a part of the work.
      flags: what a reader must doubt.
      samples: a window of each round; none of a peer whose work differs.
    """

    peer: str
    versions: Mapping[str, str]
    workers: str
    trials: Mapping[str, float]
    survey: Survey | None = None
    identity: Identity | None = None
    flags: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()

    @property
    def first_batch_s(self) -> float | None:
        """From making the loader to its first batch; None for a part of the work, which hands over no batches."""
        return None if self.survey is None else self.survey.first_batch_s

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
    reference: Survey
    peers: tuple[MeasuredPeer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured of all works, in the order of the plan."""

    works: tuple[MeasuredWork, ...]
