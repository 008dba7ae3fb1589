"""The first stage of a tf.data pipeline: the order in which an epoch reads its images, and their random draws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from pipeline.augmentation import epoch_order
from pipeline.config import LONG_EPOCH, PipelineConfig
from pipeline.sources.source import ImageSource
from pipeline.sources.stored import MappedImages
from pipeline.stages.epochs import maps_of, order_of

# How many numbers of a long epoch's order are computed by a call.
_ORDERED_AT_ONCE = 1 << 10
# The draws of how many images are made by a call, at most. The first batch waits for the first call.
_DRAWN_AT_ONCE = 1 << 13


def indices(images: int, config: PipelineConfig) -> tf.data.Dataset:
    """Yields 0 to `images` - 1, in another order each epoch; before a cache in memory, always in the same random order.

    A cache in the order of the files would hold class after class, and the shuffle buffer behind it, if smaller than a
    class, would yield hardly mixed batches.
    """
    if not config.shuffle_buffer:
        return tf.data.Dataset.range(images)
    if config.cache == "memory":
        return tf.data.Dataset.from_tensor_slices(epoch_order(images, seed=config.seed, epoch=0))
    if images > LONG_EPOCH:
        return _permuted(images, config)
    return tf.data.Dataset.range(images).shuffle(images, seed=config.seed, reshuffle_each_iteration=True)


def _permuted(images: int, config: PipelineConfig) -> tf.data.Dataset:
    """Yields 0 to `images` - 1, in another order each epoch, without holding them.

    Source: `tf.random.experimental.index_shuffle`, a permutation by a block cipher (Black and Rogaway, 2002).
    """
    keys = tf.data.Dataset.random(seed=config.seed, rerandomize_each_iteration=True).batch(2).take(1)

    def epoch(key: Any) -> tf.data.Dataset:
        key = tf.ensure_shape(tf.cast(key % (2**31 - 1), tf.int32), (2,))

        def part(first: Any) -> Any:
            numbers = tf.range(first, tf.minimum(first + _ORDERED_AT_ONCE, images))
            return tf.random.experimental.index_shuffle(numbers, key, images - 1)

        return tf.data.Dataset.range(0, images, _ORDERED_AT_ONCE).map(part).unbatch()

    return keys.flat_map(epoch).apply(tf.data.experimental.assert_cardinality(images))


def _planned_whole(source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Yields an epoch's order and draws, a batch at a time: indices (batch,) int64, maps (batch, 2, 3) float32.

    Python is called once an epoch for the order, and once for the draws of every `_DRAWN_AT_ONCE` images; the numbers
    depend on the seed and the epoch's number alone. Drawing and zipping single elements would cost tf.data some 20 us
    an image, a tenth of the time of decoding it.
    """
    images, size, epochs = source.images, config.batch_size, itertools.count()

    def plan_epoch() -> tuple[np.int64, np.ndarray]:
        epoch = next(epochs)
        return np.int64(epoch), order_of(source, config, epoch)

    def batches(_: Any) -> tf.data.Dataset:
        epoch, order = tf.numpy_function(plan_epoch, [], (tf.int64, tf.int64))
        epoch, order = tf.ensure_shape(epoch, ()), tf.ensure_shape(order, (images,))

        def part(first: Any, matrices: Any) -> tf.data.Dataset:
            starts = tf.data.Dataset.range(0, tf.shape(matrices, tf.int64)[0], size)
            return starts.map(
                lambda start: (order[first + start : first + start + size], matrices[start : start + size])
            )

        return _drawn(images, config, epoch, part, multiple_of=size)

    dataset = tf.data.Dataset.range(1).flat_map(batches)
    return dataset.apply(tf.data.experimental.assert_cardinality(math.ceil(images / size)))


def _drawn(
    images: int,
    config: PipelineConfig,
    epoch: Any,
    dataset_of: Callable[[Any, Any], tf.data.Dataset],
    *,
    multiple_of: int = 1,
) -> tf.data.Dataset:
    """Yields what `dataset_of` makes of the draws of an epoch, which are made in parts.

    Args:
      epoch: its number, a tensor.
      dataset_of: takes the number of a part's first image, int64, and the part's maps, (part, 2, 3) float32.
      multiple_of: divides the images of every part but the last.
    """
    part = max(1, _DRAWN_AT_ONCE // multiple_of) * multiple_of

    def draw(epoch: np.int64, first: np.int64) -> np.ndarray:
        return maps_of(min(part, images - int(first)), config, int(epoch), first=int(first))

    def drawn(first: Any) -> tf.data.Dataset:
        matrices = tf.numpy_function(draw, [epoch, first], tf.float32)
        return dataset_of(first, tf.ensure_shape(matrices, (images if images <= part else None, 2, 3)))

    if images <= part:
        return drawn(tf.constant(0, tf.int64))
    return tf.data.Dataset.range(0, images, part).flat_map(drawn)


def epoch_draws(images: int, config: PipelineConfig) -> tf.data.Dataset:
    """Yields one (2, 3) float32 affine map an image, drawn anew for each iterator of the dataset.

    Python is called once for every `_DRAWN_AT_ONCE` images; the numbers depend on the seed and the epoch alone.
    """
    epochs = itertools.count()

    def rows(_: Any) -> tf.data.Dataset:
        epoch = tf.ensure_shape(tf.numpy_function(lambda: np.int64(next(epochs)), [], tf.int64), ())
        return _drawn(images, config, epoch, lambda _, matrices: tf.data.Dataset.from_tensor_slices(matrices))

    dataset = tf.data.Dataset.range(1).flat_map(rows)
    return dataset.apply(tf.data.experimental.assert_cardinality(images))


def order(source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Yields the index of each image once an epoch, as `indices` does.

    Images in a file that is too large for the memory come in windows of blocks of the file, which are read ahead.
    """
    mapped = source.arrays
    if not isinstance(mapped, MappedImages) or not config.shuffle_buffer or mapped.fits_in_memory:
        return indices(source.images, config)
    epochs = itertools.count()

    def windows() -> Iterator[np.ndarray]:
        return mapped.read_ahead(mapped.block_windows(seed=config.seed, epoch=next(epochs)))

    dataset = tf.data.Dataset.from_generator(windows, output_signature=tf.TensorSpec((None,), tf.int64)).unbatch()
    return dataset.apply(tf.data.experimental.assert_cardinality(source.images))


def planned_batches(source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Yields an epoch's order and draws, as `_planned_whole` does; for a large file in windows, as `order` does."""
    mapped, size = source.arrays, config.batch_size
    if not isinstance(mapped, MappedImages) or not config.shuffle_buffer or mapped.fits_in_memory:
        return _planned_whole(source, config)
    epochs = itertools.count()

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        epoch, left, position = next(epochs), np.zeros(0, np.int64), 0
        matrices = maps_of(source.images, config, epoch)
        for window in mapped.read_ahead(mapped.block_windows(seed=config.seed, epoch=epoch)):
            left = np.concatenate([left, window])
            while len(left) >= size or (len(left) and position + len(left) == source.images):
                yield left[:size], matrices[position : position + size]
                left, position = left[size:], position + size

    spec = (tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None, 2, 3), tf.float32))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    return dataset.apply(tf.data.experimental.assert_cardinality(-(-source.images // size)))
