"""Grain's Dataset API, with threads or with processes, on files and on an array in memory.

Configured after Grain's documentation: `MapDataset` up to the batch, `ReadOptions` for threads where the work releases
Python's lock ("Converting MapDataset to IterDataset"), `mp_prefetch` for processes ("The Need for Multiprocessing"),
`num_threads=0` where "the data are already loaded in memory" (`ReadOptions`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import grain
import numpy as np
from absl import flags

from unstall.benchmarks.evidence.peers.loaders import opencv
from unstall.benchmarks.evidence.peers.loaders.remedied import Batches
from unstall.benchmarks.evidence.peers.loaders.work import BATCH, Endless, Job, Loader, to_output

# More batches than any run asks for.
_MOST_BATCHES = 10**9
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
    def random_map(self, element: tuple[str, int], rng: np.random.Generator) -> tuple[np.ndarray, int]:
        path, label = element
        return opencv.augment(opencv.load(path), rng), label


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
    return _loader(job, _shuffled(job, Photos(job), Load()))


def prepared(job: Job) -> Loader:
    return _loader(job, _shuffled(job, Rows(job), Crop()))


def two_resamplings(job: Job) -> Loader:
    return _remedied(job, one_resampling=False)


def one_resampling(job: Job) -> Loader:
    return _remedied(job, one_resampling=True)


def _shuffled(job: Job, source: Any, transform: Any) -> Any:
    dataset = grain.MapDataset.source(source).seed(0).shuffle().random_map(transform)
    return dataset.batch(BATCH, drop_remainder=False).map(ToOutput(job)).repeat()


def _remedied(job: Job, *, one_resampling: bool) -> Loader:
    batches = grain.MapDataset.range(_MOST_BATCHES).map(Batches(job, one_resampling=one_resampling))
    return _loader(job, batches, finish=lambda batch: (to_output(batch[0], job), batch[1]))


def _loader(job: Job, dataset: Any, finish: Callable[[Any], Any] | None = None) -> Loader:
    """Returns a loader of a dataset without an end; `finish` is applied to each batch in the process that trains."""
    cv2.setNumThreads(0)
    workers = int(job.workers or 0)
    if job.processes:
        # Grain reads a flag of its own when it starts a process, and takes its caller for a program of `absl.app.run`.
        flags.FLAGS.mark_as_parsed()
        options = grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=_PER_WORKER)
        batches = dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)).mp_prefetch(options)
        # For each worker: its buffer, as many batches at the parent's reader, the batches read ahead (`ReadOptions`),
        # and the batch that the worker holds. Measured after a pause: 7 batches for each worker came at once.
        buffered = workers * (2 * _PER_WORKER + 3)
    else:
        ahead = 2 * workers
        batches = dataset.to_iter_dataset(grain.ReadOptions(num_threads=workers, prefetch_buffer_size=ahead))
        buffered = ahead + 1
    if finish is not None:
        batches = batches.map(finish)
    return Endless(iter(batches), per_epoch=job.batches, buffered=buffered)
