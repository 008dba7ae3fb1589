"""The session in the process of one peer: opens the peer's loader, and reads or times epochs when the parent asks.

A peer may run under another interpreter, which needs NumPy, psutil and the peer's own library, and none of this
project's other dependencies.
"""

from __future__ import annotations

import gc
import math
import os
from typing import Any

import numpy as np

import unstall
from unstall.benchmarks.evidence.peers.loaders.work import BATCH, SIDE, Job, Loader
from unstall.benchmarks.evidence.peers.samples import Identity, Survey
from unstall.profiles import clock
from unstall.profiles.provenance import version_of

# If the pixels of an image, from 0 to 1, change by more than this on average from one epoch to the next, the loader has
# drawn the image's augmentation anew.
_CHANGED = 0.002


class Counter:
    """A sink that counts the images and batches of one feed, and notes when the first and the last batch came."""

    def __init__(self) -> None:
        self.images = self.batches = 0
        self.begun_ns = self.first_ns = self.last_ns = 0

    def begin(self) -> None:
        self.begun_ns = clock.now_ns()

    def take(self, images: Any, labels: Any) -> None:
        self.count(int(images.shape[0]))

    def count(self, images: int) -> None:
        self.last_ns = clock.now_ns()
        if not self.batches:
            self.first_ns = self.last_ns
        self.batches += 1
        self.images += images


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


def as_labels(labels: Any) -> list[int]:
    return [int(label) for label in np.asarray(labels).reshape(-1)]


class PeerSession:
    """Answers the parent in a peer's process: each public method is a request."""

    def __init__(self) -> None:
        self._loader: Loader | None = None
        self._make: Any = None
        self._opened_ns = 0

    def load(self, module: str, function: str, packages: list[str]) -> dict[str, str]:
        """Imports the peer. Returns the versions of its packages."""
        self._make = unstall.of_ours(f"{module}:{function}")
        return {name: version_of(name) for name in packages}

    def open(self, job: Job) -> None:
        """Makes the loader, after dropping the loader that was open before."""
        self._loader = None
        gc.collect()
        os.makedirs(job.folder, exist_ok=True)
        self._opened_ns = clock.now_ns()
        self._loader = self._make(job)

    def survey(self) -> Survey:
        """Reads one epoch and returns what it looked like."""
        surveyor = Surveyor()
        self._feed(1, surveyor)
        return surveyor.survey(self._opened_ns)

    def identify(self, plain: str, served: str) -> Identity:
        """Reads two epochs of a loader whose labels are the numbers of the images in the file `plain`.

        Writes to the file `served` how each image came last, (images, 64, 64, 3) float32; NaN where none came.
        """
        identifier = Identifier(np.load(plain))
        self._feed(2, identifier)
        np.save(served, identifier.served())
        return identifier.identity()

    def window(self, epochs: int) -> dict[str, int]:
        """Times `epochs` epochs, from the first request to the last batch."""
        counter = Counter()
        gc.collect()
        self._feed(epochs, counter)
        return {
            "epochs": epochs,
            "images": counter.images,
            "batches": counter.batches,
            "wall_ns": counter.last_ns - counter.begun_ns,
            "first_batch_ns": counter.first_ns - counter.begun_ns,
        }

    def collect(self, path: str) -> int:
        """Writes the images of one epoch to a file, in the order in which they are served. Returns their number."""
        parts: list[np.ndarray] = []

        class Collect(Counter):
            def take(self, images: Any, labels: Any) -> None:
                parts.append(np.rint(unit(np.asarray(images)) * 255).astype(np.uint8))

        self._feed(1, Collect())
        images = np.concatenate(parts)
        np.save(path, images)
        return len(images)

    def close(self) -> None:
        self._loader = None
        gc.collect()

    def _feed(self, epochs: int, counter: Counter) -> None:
        if self._loader is None:
            raise RuntimeError("No loader is open.")
        self._loader.feed(epochs, counter)
