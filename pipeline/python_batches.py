"""Batches for a training loop in Python: NumPy arrays, made in the thread that asks for them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline.composed import ComposedBatches
from pipeline.config import ConfigError, PipelineConfig
from pipeline.copies import prepared_copy
from pipeline.epochs import maps_of, order_of
from pipeline.sources import ImageSource


class PythonBatches:
    """Epochs of `(images, labels)`: iterate it once an epoch.

    For PyTorch, JAX, or a loop of one's own, over a `raw` copy above all: what tf.data takes for a batch, whatever is
    in it, is several times what cropping small images takes. There are no threads; images, order and draws are those
    of `tf_data` by the same config.

    Args:
      source: what to serve.
      config: with resample="composed" and an augmentation; `storage` says which copy of the source is read.
    Raises:
      ConfigError: if the config composes nothing.
      PreparedError: if a copy of the source cannot be made.
    """

    def __init__(self, source: ImageSource, config: PipelineConfig) -> None:
        if not config.composed:
            raise ConfigError(
                "`resample` must be 'composed', with an augmentation, for batches made in Python. "
                f"Received: resample={config.resample!r}, augmentation={config.augmentation}."
            )
        if config.storage != "files":
            source, _ = prepared_copy(source, config)
        self._source = source
        self._config = config
        self._batches = ComposedBatches(source, config)
        self._labels = source.labels.astype(np.int32)
        self._epoch = 0

    def __len__(self) -> int:
        return math.ceil(self._source.images / self._config.batch_size)

    def __iter__(self) -> Iterator[tuple[NDArray[np.generic], NDArray[np.int32]]]:
        """Yields images (batch, height, width, 3), float32 in [0, 1] or uint8, and labels (batch,) int32."""
        images, config = self._source.images, self._config
        epoch, self._epoch = self._epoch, self._epoch + 1
        order, matrices = order_of(self._source, config, epoch), maps_of(images, config, epoch)
        for start in range(0, images, config.batch_size):
            chosen = order[start : start + config.batch_size]
            pixels = self._batches(chosen, matrices[start : start + config.batch_size])
            if config.output_dtype == "float32":
                yield np.divide(pixels, np.float32(255), dtype=np.float32), self._labels[chosen]
            else:
                yield pixels, self._labels[chosen]
