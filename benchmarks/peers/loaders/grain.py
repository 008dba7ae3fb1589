"""Grain's Dataset API, with threads or with processes, on files and on an array in memory.

Configured after Grain's documentation: `MapDataset` up to the batch, `ReadOptions` for threads where the work releases
Python's lock ("Converting MapDataset to IterDataset"), `mp_prefetch` for processes ("The Need for Multiprocessing"),
`num_threads=0` where "the data are already loaded in memory" (`ReadOptions`).
"""

from __future__ import annotations

from typing import Any

import cv2
import grain
import numpy as np

from benchmarks.peers.loaders import opencv
from benchmarks.peers.loaders.work import BATCH, Endless, Job, Loader, to_output

# Number of batches that each worker process may have ready.
_PER_WORKER = 2


class Photos:
    """A random-access source of (path, label)."""

    def __init__(self, job: Job) -> None:
        self._paths, self._labels = job.paths, job.labels

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: Any) -> tuple[str, int]:
        return self._paths[index], self._labels[index]


class Rows:
    """A random-access source of (image, label) in memory."""

    def __init__(self, job: Job) -> None:
        self._array, self._labels = np.load(job.array), job.labels

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> tuple[np.ndarray, int]:
        return self._array[index], self._labels[index]


class Load(grain.transforms.RandomMap):
    def __init__(self, *, scaled: bool) -> None:
        self._scaled = scaled

    def random_map(self, element: tuple[str, int], rng: np.random.Generator) -> tuple[np.ndarray, int]:
        path, label = element
        return opencv.augment(opencv.load(path, scaled=self._scaled), rng), label


class Crop(grain.transforms.RandomMap):
    def random_map(self, element: tuple[np.ndarray, int], rng: np.random.Generator) -> tuple[np.ndarray, int]:
        image, label = element
        return opencv.crop(image, rng), label


class ToOutput(grain.transforms.Map):
    def __init__(self, job: Job) -> None:
        self._job = job

    def map(self, element: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        images, labels = element
        return to_output(images, self._job), labels


def cold(job: Job) -> Loader:
    return _loader(job, grain.MapDataset.source(Photos(job)), Load(scaled=True))


def cold_full(job: Job) -> Loader:
    return _loader(job, grain.MapDataset.source(Photos(job)), Load(scaled=False))


def prepared(job: Job) -> Loader:
    return _loader(job, grain.MapDataset.source(Rows(job)), Crop())


def _loader(job: Job, source: Any, transform: Any) -> Loader:
    cv2.setNumThreads(0)
    dataset = source.seed(0).shuffle().random_map(transform).batch(BATCH, drop_remainder=False).map(ToOutput(job))
    dataset = dataset.repeat()
    workers = int(job.workers or 0)
    if job.processes:
        options = grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=_PER_WORKER)
        batches = dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)).mp_prefetch(options)
        # For each worker: its buffer, as many batches at the parent's reader, the batches read ahead (`ReadOptions`),
        # and the batch that the worker holds. Measured after a pause: 7 batches for each worker came at once.
        buffered = workers * (2 * _PER_WORKER + 3)
    else:
        ahead = 2 * workers
        batches = dataset.to_iter_dataset(grain.ReadOptions(num_threads=workers, prefetch_buffer_size=ahead))
        buffered = ahead + 1
    return Endless(iter(batches), per_epoch=job.batches, buffered=buffered)
