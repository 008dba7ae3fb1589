"""Our `keras.utils.PyDataset`: OpenCV in Keras' worker threads or processes."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import threading
from collections.abc import Iterator
from typing import Any

import cv2
import keras
import numpy as np

from pipeline.augmentation import epoch_order
from pipeline.config import PipelineConfig
from pipeline.headers import jpeg_size
from pipeline.sources import ImageSource
from pipeline.warp import WARPS

_INTERPOLATION = {"bilinear": cv2.INTER_LINEAR, "nearest": cv2.INTER_NEAREST_EXACT}
_REDUCED = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}
# Slots of a record; pools are made anew each epoch, so that it holds those of a few.
_MAX_WORKERS = 256


class WorkerRecord:
    """How many workers were ever busy at once, across threads and forked processes: what `workers` came to."""

    def __init__(self) -> None:
        self._worker = multiprocessing.RawArray("q", _MAX_WORKERS)
        self._busy = multiprocessing.RawArray("b", _MAX_WORKERS)
        self._peak = multiprocessing.RawValue("i", 0)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Counts the caller as busy."""
        slot = self._slot()
        self._busy[slot] = 1
        self._peak.value = max(self._peak.value, sum(self._busy))
        try:
            yield
        finally:
            self._busy[slot] = 0

    def _slot(self) -> int:
        """Finds or takes the calling thread's slot; of two that race for one, the loser takes another."""
        me = os.getpid() * 2**32 + threading.get_native_id()
        for slot in range(_MAX_WORKERS):
            if self._worker[slot] == 0:
                self._worker[slot] = me
            if self._worker[slot] == me:
                return slot
        return me % _MAX_WORKERS

    def clear(self) -> None:
        """Forgets what was seen; no worker may be busy."""
        for slot in range(_MAX_WORKERS):
            self._worker[slot] = self._busy[slot] = 0
        self._peak.value = 0

    @property
    def workers(self) -> int:
        """Workers busy at once, at most, since `clear`."""
        return self._peak.value


class ImagePyDataset(keras.utils.PyDataset):
    """Batches of decoded, resized, augmented images; the same for any number of workers.

    The order and the draws of an epoch come from the seed and the epoch's number alone. A batch is images
    (batch, height, width, 3) float32 in [0, 1] and labels (batch,) int32.
    """

    def __init__(self, source: ImageSource, config: PipelineConfig) -> None:
        super().__init__(
            workers=int(config.workers),
            use_multiprocessing=config.use_multiprocessing,
            max_queue_size=config.max_queue_size,
        )
        self.record = WorkerRecord()
        self._source = source
        self._config = config
        self._paths = source.paths
        augmentation = config.augmentation
        self._warp = None if augmentation is None else WARPS[config.augment_with](augmentation)
        self._epoch = -1
        self._plan_next_epoch()

    def _plan_next_epoch(self) -> None:
        self._epoch += 1
        images, seed = self._source.images, self._config.seed
        shuffled = self._config.shuffle_buffer > 0
        self._order = epoch_order(images, seed=seed, epoch=self._epoch) if shuffled else np.arange(images)
        if self._config.augmentation is not None:
            draw = self._config.augmentation.draw(images, seed=seed, epoch=self._epoch)
            self._matrices = draw.affine(*self._config.image_size)

    @property
    def num_batches(self) -> int:
        return math.ceil(self._source.images / self._config.batch_size)

    def on_epoch_end(self) -> None:
        # Here and not in `on_epoch_begin`, which Keras 3.15 calls when the workers are running already. `fit` calls
        # this once before its first epoch, too, so that the first epoch it trains on is number 1.
        self._plan_next_epoch()

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        with self.record.serving():
            return self._batch(index)

    def _batch(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        start = index * self._config.batch_size
        positions = range(start, min(start + self._config.batch_size, self._source.images))
        height, width = self._config.image_size
        images = np.empty((len(positions), height, width, 3), np.float32)
        for row, position in enumerate(positions):
            image = self._load(int(self._order[position]))
            if self._warp is not None:
                image = self._warp(image, self._matrices[position])
            images[row] = image
        images *= np.float32(1 / 255)
        return images, self._source.labels[self._order[start : positions.stop]].astype(np.int32)

    def _load(self, index: int) -> np.ndarray:
        height, width = self._config.image_size
        if self._source.arrays is not None:
            image = self._source.arrays[index]
        else:
            image = _decode(self._paths[index], self._config, self._source.files[index])
        if image.shape[:2] == (height, width):
            return image
        return cv2.resize(image, (width, height), interpolation=_INTERPOLATION[self._config.interpolation])


def _decode(path: str, config: PipelineConfig, name: str) -> np.ndarray:
    """Reads one file to (height, width, 3) uint8, in RGB; `name` is what an error calls it.

    Raises:
      ValueError: if OpenCV cannot decode it.
    """
    encoded = np.fromfile(path, np.uint8)
    flags = _REDUCED[_ratio(encoded, config.image_size)] if config.decode == "scaled" else cv2.IMREAD_COLOR
    image: Any = cv2.imdecode(encoded, flags | cv2.IMREAD_IGNORE_ORIENTATION)
    if image is None:
        raise ValueError(f"{name} cannot be decoded by OpenCV.")
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def _ratio(encoded: np.ndarray, image_size: tuple[int, int]) -> int:
    """Returns the largest of 8, 4, 2, 1 by which a JPEG can be decoded and still be at least `image_size`."""
    shape = jpeg_size(encoded.tobytes())
    if shape is None:
        return 1
    fits = [r for r in (8, 4, 2) if all(-(-side // r) >= least for side, least in zip(shape, image_size, strict=True))]
    return fits[0] if fits else 1
