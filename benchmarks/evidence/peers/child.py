"""The session in the process of one peer: opens the peer's loader, and checks or times epochs when the parent asks.

A peer may run under another interpreter, which needs NumPy, psutil and the peer's own library, and none of this
project's other dependencies.
"""

from __future__ import annotations

import collections
import gc
import os
from typing import Any

import numpy as np

import unstall
from unstall.benchmarks.evidence.peers.loaders.work import BATCH, Job, Loader
from unstall.benchmarks.evidence.peers.samples import Served
from unstall.profiles import clock
from unstall.profiles.provenance import version_of


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


class Checker(Counter):
    """A sink that notes the form of the batches of one epoch, and their labels."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes: list[int] = []
        self._dtypes: set[str] = set()
        self._shapes: set[tuple[int, ...]] = set()
        self._labels: collections.Counter[int] = collections.Counter()

    def take(self, images: Any, labels: Any) -> None:
        super().take(images, labels)
        pixels = np.asarray(images)
        self._sizes.append(len(pixels))
        self._dtypes.add(str(pixels.dtype))
        self._shapes.add(tuple(pixels.shape[1:]))
        self._labels.update(as_labels(labels))

    def served(self, opened_ns: int) -> Served:
        """Returns what the epoch looked like; the loader began to be made at `opened_ns`."""
        return Served(
            first_batch_s=(self.first_ns - opened_ns) / 1e9,
            images=self.images,
            dtypes=tuple(sorted(self._dtypes)),
            shapes=tuple(sorted(self._shapes)),
            # The short batch need not come last: Keras' `fit` shuffles batches, and threads finish out of order.
            full_batches=all(size == BATCH for size in sorted(self._sizes)[1:]) and min(self._sizes) <= BATCH,
            labels=dict(sorted(self._labels.items())),
        )


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

    def check(self) -> Served:
        """Reads one epoch and returns what it looked like."""
        checker = Checker()
        self.feed(1, checker)
        return checker.served(self._opened_ns)

    def window(self, epochs: int) -> dict[str, int]:
        """Times `epochs` epochs, from the first request to the last batch."""
        counter = Counter()
        gc.collect()
        self.feed(epochs, counter)
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
                parts.append(np.rint(np.asarray(images) * 255).astype(np.uint8))

        self.feed(1, Collect())
        images = np.concatenate(parts)
        np.save(path, images)
        return len(images)

    def close(self) -> None:
        self._loader = None
        gc.collect()

    def feed(self, epochs: int, counter: Counter) -> None:
        if self._loader is None:
            raise RuntimeError("No loader is open.")
        self._loader.feed(epochs, counter)
