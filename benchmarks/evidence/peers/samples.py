"""The raw samples of each peer: what the peer's process saw of the images that were served, and timed windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What one epoch of a peer looked like; loaders that do the same work agree in these values.

    Attributes:
      first_batch_s: from making the loader to its first batch, the start of worker processes included.
      images: number of images in the epoch.
      dtype, shape: the dtype of the last batch, and the shape of one image in that batch.
      full_batches: whether all batches had the requested size, except for at most one shorter batch.
      range: the smallest and the largest value of a pixel, as served.
      mean, std: of each channel, with pixel values scaled to [0, 1].
      labels: number of images of each label.
      class_means: by label, the mean of all pixels of the label's images, with values scaled to [0, 1].
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
    """What two epochs of a peer showed about each image; the labels were the images' numbers, to recognize each image.

    Attributes:
      images: number of images in an epoch.
      once: whether both epochs together served each image exactly twice.
      served, distinct: number of images that both epochs served, and number of different images among them.
      shuffled: whether the second epoch served the images in another order than that of their numbers.
      changed_ratio: fraction of the images whose pixels differed between the epochs.
      flipped_ratio: fraction of the images that were more like their photo's mirror image than like the photo.
      pairing: correlation of the brightness of the served images with that of the photos with the same numbers.
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
      survey: what the peer's process saw of one epoch; None for a part of the work.
      identity: what the process saw of two epochs of numbered images; None for a part of the work.
      differences: by rendition, how far each compared image is from the same photo made in that way: the mean absolute
        difference of its pixels, from 0 to 255; empty for a part of the work.
      flags: warnings for the reader: choices of workers that failed, or processes that kept using CPU.
      samples: one window for each round; empty for a peer whose work differs from the reference's.
    """

    peer: str
    versions: Mapping[str, str]
    workers: str
    trials: Mapping[str, float]
    survey: Survey | None = None
    identity: Identity | None = None
    differences: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()

    @property
    def first_batch_s(self) -> float | None:
        """From making the loader to its first batch; None for a part of the work, which serves no batches."""
        return None if self.survey is None else self.survey.first_batch_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWork:
    """What was measured of one work.

    Attributes:
      images: number of images in an epoch.
      reference: the survey of the loader with which the peers' work is compared.
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
