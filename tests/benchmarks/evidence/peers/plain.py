"""The prepared work in a plain loop: the reference with which the peers' batches are compared."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unstall.benchmarks.evidence.peers.loaders.opencv import crop
from unstall.benchmarks.evidence.peers.loaders.work import BATCH, AllEpochs, Job, Loader, to_output


def prepared(job: Job) -> Loader:
    array, labels = np.load(job.array, mmap_mode="r"), np.array(job.labels)
    random = np.random.default_rng(0)

    def batches(epochs: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for _ in range(epochs):
            order = random.permutation(job.images)
            for start in range(0, job.images, BATCH):
                rows = order[start : start + BATCH]
                yield to_output(np.stack([crop(array[row], random) for row in rows]), job), labels[rows]

    return AllEpochs(batches)
