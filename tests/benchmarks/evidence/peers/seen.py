"""What the process of a peer sees of all that the peer serves: statistics of an epoch, and each image of two epochs.

It needs NumPy alone, as the process of a peer does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unstall.benchmarks.evidence.peers.child import Counter, PeerSession, as_labels
from unstall.benchmarks.evidence.peers.loaders.work import BATCH, SIDE

# If the pixels of an image, from 0 to 1, change by more than this on average from one epoch to the next, the loader has
# drawn the image's augmentation again.
_CHANGED = 0.002


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


class Surveyor(Counter):
    """A sink that collects statistics of every image of one epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.dtype = ""
        self.shape: tuple[int, ...] = ()
        self.sizes: list[int] = []
        self.labels: dict[int, int] = {}
        self._low, self._high = math.inf, -math.inf
        # By label, the sums over the label's images of each channel's mean and mean square: (2, 3).
        self._sums: dict[int, np.ndarray] = {}

    def take(self, images: Any, labels: Any) -> None:
        super().take(images, labels)
        pixels = np.asarray(images)
        self.dtype, self.shape = str(pixels.dtype), tuple(pixels.shape[1:])
        self.sizes.append(len(pixels))
        self._low, self._high = min(self._low, float(pixels.min())), max(self._high, float(pixels.max()))
        values = unit(pixels)
        for row, label in zip(values, as_labels(labels), strict=True):
            self.labels[label] = self.labels.get(label, 0) + 1
            sums = np.stack([row.mean((0, 1)), (row.astype(np.float64) ** 2).mean((0, 1))])
            self._sums[label] = self._sums.get(label, 0) + sums

    def survey(self, opened_ns: int) -> Survey:
        """Returns what the epoch looked like; the loader began to be made at `opened_ns`."""
        mean, square = sum(self._sums.values(), np.zeros((2, 3))) / max(self.images, 1)
        return Survey(
            first_batch_s=(self.first_ns - opened_ns) / 1e9,
            images=self.images,
            dtype=self.dtype,
            shape=self.shape,
            # The short batch need not come last: Keras' `fit` shuffles batches, and threads finish out of order.
            full_batches=all(size == BATCH for size in sorted(self.sizes)[1:]) and min(self.sizes) <= BATCH,
            range=(self._low, self._high),
            mean=tuple(mean.tolist()),
            std=tuple(np.sqrt(np.maximum(square - mean**2, 0)).tolist()),
            labels={str(label): count for label, count in sorted(self.labels.items())},
            class_means={
                str(label): float(sums[0].mean() / self.labels[label]) for label, sums in sorted(self._sums.items())
            },
        )


class Identifier(Counter):
    """A sink that recognizes each image of two epochs by its label, which is the image's number."""

    def __init__(self, plain: np.ndarray) -> None:
        super().__init__()
        self._plain = plain.astype(np.float32) / 255
        self._seen: list[int] = []
        self._images: dict[int, list[np.ndarray]] = {}
        self._flipped: list[bool] = []

    def take(self, images: Any, labels: Any) -> None:
        super().take(images, labels)
        for image, number in zip(unit(np.asarray(images)), as_labels(labels), strict=True):
            self._seen.append(number)
            self._images.setdefault(number, []).append(image.copy())
            if 0 <= number < len(self._plain) and image.shape == self._plain[number].shape:
                plain = self._plain[number]
                straight = np.abs(image - plain).mean()
                self._flipped.append(bool(np.abs(image[:, ::-1] - plain).mean() < straight))

    def identity(self) -> Identity:
        """Returns what the two epochs showed about each image."""
        count = len(self._plain)
        second = self._seen[count:]
        changes = [
            float(np.abs(pair[0] - pair[1]).mean()) > _CHANGED for pair in self._images.values() if len(pair) > 1
        ]
        return Identity(
            images=count,
            # Both epochs are checked together: if threads finish out of order, a batch of the first epoch may come
            # during the second.
            once=sorted(self._seen) == sorted([*range(count)] * 2),
            served=len(self._seen),
            distinct=len(set(self._seen)),
            shuffled=second != sorted(second),
            changed_ratio=float(np.mean(changes)) if changes else 0.0,
            flipped_ratio=float(np.mean(self._flipped)) if self._flipped else 0.0,
            pairing=self._pairing(),
        )

    def served(self) -> np.ndarray:
        """Returns how each image came last, (images, 64, 64, 3) float32 in [0, 1]; NaN where none came."""
        images = np.full(self._plain.shape, np.nan, np.float32)
        for number, each in self._images.items():
            if 0 <= number < len(images) and each[-1].shape == images.shape[1:]:
                images[number] = each[-1]
        return images

    def _pairing(self) -> float:
        """Returns the correlation of the images' brightness with that of the photos with the same numbers."""
        numbers = [number for number in self._images if 0 <= number < len(self._plain)]
        if len(numbers) < 2:
            return 0.0
        served = np.array([np.mean(self._images[number]) for number in numbers])
        expected = np.array([self._plain[number].mean() for number in numbers])
        if served.std() == 0 or expected.std() == 0:
            return 0.0
        return float(np.corrcoef(served, expected)[0, 1])


def unit(images: np.ndarray) -> np.ndarray:
    """Returns images as (images, 64, 64, 3) in [0, 1], from uint8 or float, channels last or first."""
    if images.shape[1:] == (3, SIDE, SIDE):
        images = np.moveaxis(images, 1, -1)
    return images / np.float32(255) if images.dtype == np.uint8 else images


class ProvingSession(PeerSession):
    """Answers, in a peer's process, what a proof of equal work asks."""

    def survey(self) -> Survey:
        """Reads one epoch and returns what it looked like."""
        surveyor = Surveyor()
        self.feed(1, surveyor)
        return surveyor.survey(self._opened_ns)

    def identify(self, plain: str, served: str) -> Identity:
        """Reads two epochs of a loader whose labels are the numbers of the images in the file `plain`.

        Writes to the file `served` how each image came last, (images, 64, 64, 3) float32; NaN where none came.
        """
        identifier = Identifier(np.load(plain))
        self.feed(2, identifier)
        np.save(served, identifier.served())
        return identifier.identity()
