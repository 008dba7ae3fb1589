"""The first stage of a tf.data pipeline: the order in which an epoch reads its images, and their random draws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from unstall.pipeline.config import LONG_EPOCH, PipelineConfig
from unstall.pipeline.draws import epoch_order
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.stages.epochs import PLANNED_AT_ONCE, maps_of, orders_of, read_in_windows

_INDICES = tf.TensorSpec((None,), tf.int64)
_MAPS = tf.TensorSpec((None, 2, 3), tf.float32)


class _Part(NamedTuple):
    """An array that is computed for each part of an epoch.

    Attributes:
      compute: takes the epoch's number, the place of the part's first image, and the end of the part.
      spec: shape and type of the array.
    """

    compute: Callable[[int, int, int], NDArray[np.generic]]
    spec: tf.TensorSpec


def order(source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Yields the index of each image once an epoch, in another order each epoch.

    Before a cache in memory it is always the same random order. A cache in the order of the files would hold class
    after class, and the shuffle buffer behind it, if smaller than a class, would yield hardly mixed batches. Images in
    a file that is too large for the memory come in windows of blocks of the file, which are read ahead.
    """
    images = source.images
    if not config.shuffle_buffer:
        return tf.data.Dataset.range(images)
    if (mapped := read_in_windows(source, config)) is not None:
        epochs = itertools.count()

        def windows() -> Iterator[NDArray[np.int64]]:
            return mapped.read_ahead(mapped.block_windows(seed=config.seed, epoch=next(epochs)))

        return _counted(tf.data.Dataset.from_generator(windows, output_signature=_INDICES).unbatch(), images)
    if config.cache == "memory":
        return tf.data.Dataset.from_tensor_slices(epoch_order(images, seed=config.seed, epoch=0))
    if images <= LONG_EPOCH:
        return tf.data.Dataset.range(images).shuffle(images, seed=config.seed, reshuffle_each_iteration=True)
    return _counted(_in_parts(images, _ordered(source, config)).unbatch(), images)


def epoch_draws(images: int, config: PipelineConfig) -> tf.data.Dataset:
    """Yields one (2, 3) float32 affine map an image, drawn anew for each iterator of the dataset."""
    return _counted(_in_parts(images, _drawn(config)).unbatch(), images)


def planned_batches(source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Yields an epoch's order and draws, a batch at a time: indices (batch,) int64, maps (batch, 2, 3) float32.

    The numbers depend on the seed and the epoch's number alone. Drawing and zipping single elements would cost tf.data
    some 20 us an image, a tenth of the time of decoding it.
    """
    images, size = source.images, config.batch_size
    if (mapped := read_in_windows(source, config)) is None:
        parts = _in_parts(images, _ordered(source, config), _drawn(config))
    else:
        epochs = itertools.count()

        def windows() -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
            epoch, first = next(epochs), 0
            for window in mapped.read_ahead(mapped.block_windows(seed=config.seed, epoch=epoch)):
                yield window, maps_of(len(window), config, epoch, first=first)
                first += len(window)

        parts = tf.data.Dataset.from_generator(windows, output_signature=(_INDICES, _MAPS))
    return _counted(parts.rebatch(size), math.ceil(images / size))


def _ordered(source: ImageSource, config: PipelineConfig) -> _Part:
    orders = orders_of(source, config)
    return _Part(lambda epoch, first, end: orders(epoch)(np.arange(first, end)), _INDICES)


def _drawn(config: PipelineConfig) -> _Part:
    def drawn(epoch: int, first: int, end: int) -> NDArray[np.float32]:
        return maps_of(end - first, config, epoch, first=first)

    return _Part(drawn, _MAPS)


def _in_parts(images: int, *of_a_part: _Part) -> tf.data.Dataset:
    """Yields an element for each part of an epoch, with the arrays of `of_a_part`.

    At the first part of an epoch Python counts the epochs, and `scan` hands the epoch's number to the other parts. A
    dataset of the parts inside a function of the number would take tf.data 8 ms more to begin an epoch.
    """
    epochs = itertools.count()

    def compute(epoch: np.int64, first: np.int64) -> list[Any]:
        number, end = int(epoch) if first else next(epochs), min(int(first) + PLANNED_AT_ONCE, images)
        return [np.int64(number), *(part.compute(number, int(first), end) for part in of_a_part)]

    def planned(epoch: Any, first: Any) -> tuple[Any, Any]:
        types = (tf.int64, *(part.spec.dtype for part in of_a_part))
        epoch, *arrays = tf.numpy_function(compute, [epoch, first], types)
        shaped = [tf.ensure_shape(array, part.spec.shape) for array, part in zip(arrays, of_a_part, strict=True)]
        return tf.ensure_shape(epoch, ()), tuple(shaped) if len(shaped) > 1 else shaped[0]

    return tf.data.Dataset.range(0, images, PLANNED_AT_ONCE).scan(tf.constant(0, tf.int64), planned)


def _counted(dataset: tf.data.Dataset, elements: int) -> tf.data.Dataset:
    """Tells a dataset how many elements it has: `fit` would otherwise start an additional epoch to find out."""
    return dataset.apply(tf.data.experimental.assert_cardinality(elements))
