"""The session that measures subjects, on one core or on all: windows, loops in graphs, and memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.ndimage  # noqa: F401 - Keras' generator imports it when it first turns an image
import tensorflow as tf

from unstall.benchmarks.evidence.augmentation.feeds import has_loop, open_feed
from unstall.benchmarks.evidence.augmentation.libraries import LIBRARIES, Subject
from unstall.benchmarks.evidence.augmentation.samples import Sample
from unstall.profiles import clock
from unstall.profiles.machine import PeakMemory

# Target duration of a window, and its least number of batches.
_WINDOW_S, _LEAST_BATCHES = 0.1, 3
# Number of batches that run while memory is measured; threads and buffers reach their full size within fewer.
_MEMORY_BATCHES = 20
_WARM_UP = Subject(operation="none", library="tf_ops", placement="batch")


class AugmentationSession:
    """Answers the parent: each public method is a request.

    Args:
      images: (images, side, side, 3) uint8.
      batch_size: number of images in a batch.
      cores: number of parallel calls; with 1 this process uses a single core only.
    """

    def __init__(self, images: np.ndarray, batch_size: int, cores: int) -> None:
        self._images, self._batch_size, self._cores = images, batch_size, cores
        self._feeds: dict[Subject, tuple[Iterator[Any], int]] = {}
        if cores == 1 and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        tf.config.threading.set_intra_op_parallelism_threads(cores)
        tf.config.threading.set_inter_op_parallelism_threads(cores)
        for library in LIBRARIES.values():  # imports it, so that no subject pays for that
            library.build("flip", images.shape[1], library.placements[0])

    def loop(self, subject: Subject) -> bool | None:
        return has_loop(subject, side=self._images.shape[1], batch_size=self._batch_size)

    def window(self, subject: Subject, round_: int) -> Sample:
        """Measures one window of a subject, after tracing and warming up."""
        if subject not in self._feeds:
            self._open(subject)
        feed, batches = self._feeds[subject]
        _take(feed, 2 * self._cores)  # takes out what was prepared before the window, so that it is not counted
        start_busy_ns, _ = clock.machine_cpu_ns()
        start_ns, start_cpu_ns = clock.now_ns(), clock.own_cpu_ns()
        _take(feed, batches)
        cpu_ns, wall_ns = clock.own_cpu_ns() - start_cpu_ns, clock.now_ns() - start_ns
        busy_ns, _ = clock.machine_cpu_ns()
        return Sample(
            round=round_,
            cores=self._cores,
            images=batches * self._batch_size,
            wall_ns=wall_ns,
            cpu_ns=cpu_ns,
            others_cpu_ns=max(0, busy_ns - start_busy_ns - cpu_ns),
        )

    def _open(self, subject: Subject) -> None:
        feed = open_feed(subject, self._images, batch_size=self._batch_size, calls=self._cores)
        _take(feed, 2 * self._cores + 1)  # the first batch traces the function
        start_ns = clock.now_ns()
        _take(feed, _LEAST_BATCHES)
        batch_s = max(1, clock.now_ns() - start_ns) / _LEAST_BATCHES / 1e9
        self._feeds[subject] = feed, max(_LEAST_BATCHES, round(_WINDOW_S / batch_s))

    def peak_memory_bytes(self, subject: Subject) -> int | None:
        """Returns how far the resident memory of this process, which must be new, rises at most while a subject runs.

        Counted are the subject's graph and threads, the batches that as many calls as there are cores make at a time,
        and what the library loads when first used. The photos, the imports and TensorFlow at rest are not counted. None
        where the system does not tell.
        """
        _take(open_feed(_WARM_UP, self._images, batch_size=1, calls=self._cores), _MEMORY_BATCHES)
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # only glibc has this function
            ctypes.CDLL(None).malloc_trim(0)  # otherwise the subject would reuse what was freed, unseen
        memory = PeakMemory()
        _take(open_feed(subject, self._images, batch_size=self._batch_size, calls=self._cores), _MEMORY_BATCHES)
        return memory.growth_bytes()

    def close(self) -> None:
        self._feeds.clear()


def _take(feed: Iterator[Any], batches: int) -> None:
    for _ in range(batches):
        next(feed)
