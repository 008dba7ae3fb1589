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

    The key is drawn with the first part, and handed on from part to part: a dataset of parts inside a function of the
    key would take tf.data 18 ms more to begin an epoch.

    Source: `tf.random.experimental.index_shuffle`, a permutation by a block cipher (Black and Rogaway, 2002).
    """
    keys = tf.data.Dataset.random(seed=config.seed, rerandomize_each_iteration=True).batch(2, drop_remainder=True)
    firsts = tf.data.Dataset.range(0, images, _ORDERED_AT_ONCE)

    def part(key: Any, element: tuple[Any, Any]) -> tuple[Any, Any]:
        first, new_key = element
        key = tf.where(first == 0, new_key, key)
        numbers = tf.range(first, tf.minimum(first + _ORDERED_AT_ONCE, images))
        return key, tf.random.experimental.index_shuffle(numbers, tf.cast(key % (2**31 - 1), tf.int32), images - 1)

    parts = tf.data.Dataset.zip((firsts, keys)).scan(tf.zeros((2,), tf.int64), part)
    return parts.unbatch().apply(tf.data.experimental.assert_cardinality(images))


def _planned_whole(source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Yields an epoch's order and draws, a batch at a time: indices (batch,) int64, maps (batch, 2, 3) float32.

    Python is called once an epoch for the order, and once for the draws of every `_DRAWN_AT_ONCE` images; the numbers
    depend on the seed and the epoch's number alone. Drawing and zipping single elements would cost tf.data some 20 us
    an image, a tenth of the time of decoding it.
    """
    images, size = source.images, config.batch_size
    at_once = max(1, _DRAWN_AT_ONCE // size) * size
    drawn = _part_drawer(images, config, at_once)

    def plan(epoch: np.int64) -> np.ndarray:
        return order_of(source, config, int(epoch))

    def planned(state: tuple[Any, Any], first: Any) -> tuple[Any, Any]:
        epoch, matrices = drawn(state[0], first)
        order = tf.cond(first == 0, lambda: tf.numpy_function(plan, [epoch], tf.int64), lambda: state[1])
        order = tf.ensure_shape(order, (images,))
        return (epoch, order), (order[first : first + at_once], matrices)

    begin = tf.constant(0, tf.int64), tf.zeros((0,), tf.int64)
    dataset = tf.data.Dataset.range(0, images, at_once).scan(begin, planned).rebatch(size)
    return dataset.apply(tf.data.experimental.assert_cardinality(math.ceil(images / size)))


def _part_drawer(images: int, config: PipelineConfig, at_once: int) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Returns a function that draws a part of an epoch: it takes the epoch's number, and the part's first image.

    The function returns the epoch's number, which the first part of an epoch counts and the others hand on, and the
    part's maps, (part, 2, 3) float32. A dataset of the parts inside a function of the number would take tf.data 8 ms
    more to begin an epoch.
    """
    epochs = itertools.count()

    def draw(epoch: np.int64, first: np.int64) -> tuple[np.int64, np.ndarray]:
        number = int(epoch) if first else next(epochs)
        return np.int64(number), maps_of(min(at_once, images - int(first)), config, number, first=int(first))

    def drawn(epoch: Any, first: Any) -> tuple[Any, Any]:
        epoch, matrices = tf.numpy_function(draw, [epoch, first], (tf.int64, tf.float32))
        return tf.ensure_shape(epoch, ()), tf.ensure_shape(matrices, (None, 2, 3))

    return drawn


def epoch_draws(images: int, config: PipelineConfig) -> tf.data.Dataset:
    """Yields one (2, 3) float32 affine map an image, drawn anew for each iterator of the dataset.

    Python is called once for every `_DRAWN_AT_ONCE` images; the numbers depend on the seed and the epoch alone.
    """
    at_once = _DRAWN_AT_ONCE
    parts = tf.data.Dataset.range(0, images, at_once)
    dataset = parts.scan(tf.constant(0, tf.int64), _part_drawer(images, config, at_once)).unbatch()
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
