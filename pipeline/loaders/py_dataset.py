"""`ImagePyDataset`, a `keras.utils.PyDataset`: OpenCV in threads or processes, each watched by a thread of Keras."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.loaders.workers import BATCH_TIMEOUT_S, Workers
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.stages.compose import Empty
from unstall.pipeline.stages.epochs import maps_of, order_of
from unstall.pipeline.stages.separate import opencv_batches

# Slots of a record. Each epoch has new workers, and a record holds the workers of several epochs.
_MAX_WORKERS = 256


class WorkerRecord:
    """Counts how many workers were busy at once, over threads and forked processes."""

    def __init__(self) -> None:
        self._worker = multiprocessing.RawArray("q", _MAX_WORKERS)
        self._busy = multiprocessing.RawArray("b", _MAX_WORKERS)
        # The most busy workers that each worker saw. Two workers that wrote one number at once could lose the larger.
        self._seen = multiprocessing.RawArray("i", _MAX_WORKERS)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Counts the calling thread as busy during the block."""
        slot = self._slot()
        self._busy[slot] = 1
        self._seen[slot] = max(self._seen[slot], sum(self._busy))
        try:
            yield
        finally:
            self._busy[slot] = 0

    def _slot(self) -> int:
        """Finds the calling thread's slot, or takes a free one.

        The system numbers the threads of all processes one after the other. So workers that start at the same moment
        begin their search in different slots, and no two take the same slot.
        """
        thread = threading.get_native_id()
        for step in range(_MAX_WORKERS):
            slot = (thread + step) % _MAX_WORKERS
            if self._worker[slot] == 0:
                self._worker[slot] = thread
            if self._worker[slot] == thread:
                return slot
        return thread % _MAX_WORKERS

    def clear(self) -> None:
        """Empties the record; no worker may be busy."""
        for slot in range(_MAX_WORKERS):
            self._worker[slot] = self._busy[slot] = self._seen[slot] = 0

    @property
    def workers(self) -> int:
        """The most workers that were busy at once since `clear`."""
        return max(self._seen)


class ImagePyDataset(keras.utils.PyDataset):
    """Batches of decoded, resized, augmented images; the same for any number of workers.

    The order and the draws of an epoch come from the seed and the epoch's number alone. A batch is images
    (batch, height, width, 3) float32 in [0, 1] and labels (batch,) int32.

    A worker that is killed, or hangs, ends `fit` with a `workers.WorkerError` that names it. For this, Keras gets
    threads only: each thread has its batches made by one of our workers, and watches that worker.

    Args:
      source: the images to serve.
      config: the pipeline.
      batch_timeout_s: how long a worker may take for a batch before it counts as hung.
    Attributes:
      worker_processes: whether the workers are forked processes; else they are threads.
      record: how many workers were busy at once.
    """

    def __init__(
        self, source: ImageSource, config: PipelineConfig, *, batch_timeout_s: float = BATCH_TIMEOUT_S
    ) -> None:
        super().__init__(workers=int(config.workers), max_queue_size=config.max_queue_size)
        self.worker_processes = config.use_multiprocessing
        self.record = WorkerRecord()
        self._batch_timeout_s = batch_timeout_s
        self._starting = threading.Lock()
        self._crew: Workers | None = None
        self._end_crew: Any = None
        self._source = source
        self._config = config
        self._pixels = opencv_batches(source, config)
        self._epoch = -1
        self._plan_next_epoch()

    def _plan_next_epoch(self) -> None:
        self._epoch += 1
        self._order = order_of(self._source, self._config, self._epoch)

    @property
    def num_batches(self) -> int:
        return math.ceil(self._source.images / self._config.batch_size)

    def on_epoch_end(self) -> None:
        # Not in `on_epoch_begin`: Keras 3.15 calls that when the workers are already running. `fit` also calls this
        # method before its first epoch, so the first epoch that it trains on is number 1.
        with self._starting:
            self._close()
            self._plan_next_epoch()
            self._crew = None

    def close(self) -> None:
        """Ends the workers of an epoch that was broken off; `fit` ends them at the end of an epoch, or when it begins.

        After a broken-off epoch Keras keeps this object until the process ends, and its pool still asks for the batches
        in its queue. No new workers are started for these before the next epoch.
        """
        with self._starting:
            self._close()

    def _close(self) -> None:
        if self._crew is not None:
            self._end_crew()

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        # The user asks for a batch, or Keras for two batches before its first epoch.
        if threading.current_thread() is threading.main_thread():
            return self.make_in_caller(index)
        return self._epochs_crew().make(index)

    def make_in_caller(self, index: int, empty: Empty = np.empty) -> tuple[np.ndarray, np.ndarray]:
        """Makes batch `index` in the calling thread, whichever that is; `empty` makes the array of its images."""
        with self.record.serving():
            return self._batch(index, empty)

    def _epochs_crew(self) -> Workers:
        """Returns the epoch's workers. The first call starts them; forked processes inherit the epoch's plan."""
        with self._starting:
            if self._crew is None:
                self._crew = Workers(
                    self.make_in_caller,
                    self.workers,
                    processes=self.worker_processes,
                    timeout_s=self._batch_timeout_s,
                    batch_bytes=self._config.batch_size * (math.prod(self._config.image_size) * 3 * 4 + 4),
                )
                self._end_crew = weakref.finalize(self, self._crew.close)
            return self._crew

    def _batch(self, index: int, empty: Empty) -> tuple[np.ndarray, np.ndarray]:
        start = index * self._config.batch_size
        stop = min(start + self._config.batch_size, self._source.images)
        chosen = self._order(np.arange(start, stop))
        labels = self._source.labels[chosen].astype(np.int32)
        pixels = self._pixels(chosen, maps_of(stop - start, self._config, self._epoch, first=start))
        return np.divide(pixels, np.float32(255), empty(pixels.shape, np.float32)), labels
