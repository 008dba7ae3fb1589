"""`PythonBatches`: NumPy batches for a training loop in Python, made by the calling thread or by worker processes."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.errors import ConfigError
from unstall.pipeline.loaders.workers import BATCH_TIMEOUT_S, Workers
from unstall.pipeline.prepared.copies import prepared_copy
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.stages.compose import Empty
from unstall.pipeline.stages.epochs import PLANNED_AT_ONCE, maps_of, orders_of
from unstall.pipeline.stages.separate import opencv_batches
from unstall.pipeline.stages.warp import WARPS


class PythonBatches:
    """Batches `(images, labels)`: each iteration is an epoch, and must end before the next begins.

    For PyTorch, JAX, or any other loop in Python, above all over a `raw` copy: what tf.data adds to each batch takes
    several times as long as cropping small images. Images, order and draws are the same for any number of workers, and
    those of `py_dataset` with the same config; if it composes, those of `tf_data` too.

    Args:
      source: the images to serve.
      config: OpenCV or albumentations augments, if anything; `storage` says which copy of the source is read. Its
        `workers` are tf.data's, and are not used.
      workers: number of processes that make batches ahead, also those of the next epoch. They are forked at the first
        batch and live until `close`. 0: the calling thread makes the batches.
      batch_timeout_s: how long a worker may take for a batch before it counts as hung.
    Raises:
      ConfigError: if the config asks for another library or for a cache, or `workers` is negative.
      PreparedError: if a copy of the source cannot be made.
    """

    def __init__(
        self,
        source: ImageSource,
        config: PipelineConfig,
        *,
        workers: int = 0,
        batch_timeout_s: float = BATCH_TIMEOUT_S,
    ) -> None:
        if config.augmentation is not None and config.augment_with not in WARPS:
            raise ConfigError(
                f"`augment_with` must be one of {', '.join(WARPS)} for batches made in Python. "
                f"Received: augment_with={config.augment_with!r}."
            )
        if config.cache != "none":
            raise ConfigError(
                "`cache` must be 'none' for batches made in Python: `storage` has copies. "
                f"Received: cache={config.cache!r}."
            )
        if workers < 0:
            raise ConfigError(f"`workers` must be 0 or more. Received: workers={workers}.")
        if config.storage != "files":
            source, _ = prepared_copy(source, config)
        self._config = config
        self._maker = _Maker(source, config, in_turn=max(1, workers))
        self._workers = workers
        self._batch_timeout_s = batch_timeout_s
        self._crew: Workers | None = None
        self._epoch = -1

    def __len__(self) -> int:
        return self._maker.batches

    def __iter__(self) -> Iterator[tuple[NDArray[np.generic], NDArray[np.int32]]]:
        """Yields images (batch, height, width, 3), float32 in [0, 1] or uint8, and labels (batch,) int32.

        Raises:
          WorkerError: if a worker died or hangs.
          RuntimeError: if another epoch was begun before this one had ended.
        """
        self._epoch += 1
        epoch, first = self._epoch, self._epoch * len(self)
        if self._workers:
            batches = self._crew_now().in_order(first, len(self))
        else:
            batches = map(self._maker.make, range(first, first + len(self)))
        for pixels, labels in batches:
            yield self._served(pixels), labels.copy()
            if self._epoch != epoch:
                raise RuntimeError("Another epoch was begun before this one had ended.")

    def _served(self, pixels: NDArray[np.uint8]) -> NDArray[np.generic]:
        """Returns images that the caller may keep.

        Floats are made here and not by the workers, who would have to hand over four times as many bytes.
        """
        if self._config.output_dtype == "float32":
            return np.divide(pixels, np.float32(255), dtype=np.float32)
        return pixels.copy() if self._workers else pixels

    def _crew_now(self) -> Workers:
        """Returns the workers. Forks them at the first call, and again after a failure or in a forked process."""
        if self._crew is not None and not self._crew.usable:
            self.close()
        if self._crew is None:
            self._crew = Workers(
                self._maker.make,
                self._workers,
                processes=True,
                timeout_s=self._batch_timeout_s,
                batch_bytes=self._maker.batch_bytes,
            )
            self._end_crew = weakref.finalize(self, self._crew.close)
        return self._crew

    def close(self) -> None:
        """Ends the workers; the next epoch forks new ones."""
        if self._crew is not None:
            self._end_crew()
            self._crew = None


class _Maker:
    """Makes the batches of all epochs; their numbers go on from one epoch to the next.

    Args:
      in_turn: number of processes that make batches in turn. Each process plans only its own batches.
    """

    def __init__(self, source: ImageSource, config: PipelineConfig, *, in_turn: int) -> None:
        self._source = source
        self._config = config
        self._in_turn = in_turn
        self._pixels = opencv_batches(source, config)
        self._labels = source.labels.astype(np.int32)
        self._orders = orders_of(source, config)
        self._planned = (-1, -1, -1)
        # The batches that are planned at once, over all processes: as many for each, at least one.
        self._part_batches = max(1, PLANNED_AT_ONCE // (config.batch_size * in_turn)) * in_turn
        self.batches = math.ceil(source.images / config.batch_size)
        self.batch_bytes = config.batch_size * (math.prod(config.image_size) * 3 + self._labels.itemsize)

    def make(self, index: int, empty: Empty = np.empty) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        epoch, batch = divmod(index, self.batches)
        part, within = divmod(batch, self._part_batches)
        wanted = epoch, part, within % self._in_turn
        if self._planned != wanted:
            self._plan_turns(*wanted)
            self._planned = wanted
        # The plan holds this process' batches only, one after the other.
        begin = within // self._in_turn * self._config.batch_size
        rows = slice(begin, begin + self._config.batch_size)
        chosen = self._order[rows]
        return self._pixels(chosen, self._matrices[rows], self._plan[rows], empty), self._labels[chosen]

    def _plan_turns(self, epoch: int, part: int, turn: int) -> None:
        """Plans the batch `turn` of a part of an epoch, and every `in_turn`-th batch after it in this part."""
        size = self._config.batch_size
        first = part * self._part_batches * size
        images = min(self._part_batches * size, self._source.images - first)
        rows = np.flatnonzero(np.arange(images) // size % self._in_turn == turn)
        self._order = self._orders(epoch)(first + rows)
        self._matrices = maps_of(images, self._config, epoch, rows, first)
        self._plan = self._pixels.plan(self._order, self._matrices)
