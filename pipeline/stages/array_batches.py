"""Makes batches of arrays in memory like Keras' own `fit(x, y)`, but in an order that depends on seed and epoch alone.

For arrays that `from_arrays` and `build` cannot serve: grey images, tokens, features, whole batches. Arrays of colour
images can go through either: `build` resizes and augments them one by one, as it does files; this module takes a whole
batch out of the array by one `tf.gather`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from unstall.pipeline.draws import epoch_order
from unstall.pipeline.sources.published import DatasetError

# Keeps the random stream of crops apart from the streams of `pipeline.augmentation`, whose numbers are 0 to 2.
_CROPS = 3


def array_batches(
    examples: NDArray[Any],
    labels: NDArray[Any],
    *,
    batch_size: int | None,
    training: bool = True,
    seed: int = 0,
    scale: bool = False,
    crop: tuple[int, int] | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of which each iterator yields the batches of the next epoch.

    As in Keras (`ArrayDataAdapter`), each epoch is a permutation of all examples, a parallel map makes each batch by
    one gather, the last batch may be short, tf.data's own rewrites are off, and tf.data chooses how much is prefetched.
    Unlike in Keras, the permutation comes from the seed and the number of the epoch, not from TensorFlow's random
    state; labels are int32; images can be scaled and cropped in the same map. The iterator from which Keras learns the
    shapes counts as an epoch as well.

    Args:
      examples: (examples, ...).
      labels: (examples,) integers.
      batch_size: None for all the examples in one batch.
      training: whether examples are shuffled and crops are random; else they come in order, with crops from the middle.
      seed: decides the order and the crops.
      scale: whether bytes become float32 in [0, 1]; else they stay bytes, and the device can scale them.
      crop: (height, width) that is cut out of each image; None for the whole image.
    Raises:
      DatasetError: if the arrays do not match each other, or do not allow the scaling or the crop.
    """
    if len(examples) != len(labels) or not len(labels):
        raise DatasetError(
            f"There must be as many `labels` as `examples`, at least 1. Received: {len(examples)} examples and "
            f"{len(labels)} labels."
        )
    if batch_size is not None and batch_size < 1:
        raise DatasetError(f"`batch_size` must be at least 1. Received: batch_size={batch_size}.")
    if scale and examples.dtype != np.uint8:
        raise DatasetError(f"`scale` is for bytes, which it divides by 255. Received: {examples.dtype}.")
    sides = examples.shape[1:3]
    if crop is not None and (examples.ndim != 4 or min(crop) < 1 or min(np.subtract(sides, crop)) < 0):
        raise DatasetError(f"`crop` must fit into the images. Received: crop={crop}, images of {examples.shape[1:]}.")
    count = len(labels)
    size = min(batch_size or count, count)
    with tf.device("/CPU:0"):  # a GPU's memory is left to the model
        stored, numbers = tf.constant(examples), tf.constant(labels, tf.int32)
    epochs = itertools.count()

    def plan_epoch() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        epoch = next(epochs)
        order = epoch_order(count, seed=seed, epoch=epoch) if training else np.arange(count)
        return order, _corners(sides, crop, count, seed, epoch, training)

    def planned(_: Any) -> tuple[Any, Any]:
        order, corners = tf.numpy_function(plan_epoch, [], (tf.int64, tf.int64))
        return tf.ensure_shape(order, (count,)), tf.ensure_shape(corners, (count, 0 if crop is None else 2))

    def gather(order: Any, corners: Any) -> tuple[Any, Any]:
        batch = tf.gather(stored, order)
        if crop is not None:
            rows = corners[:, :1] + tf.range(crop[0], dtype=tf.int64)
            columns = corners[:, 1:] + tf.range(crop[1], dtype=tf.int64)
            batch = tf.gather(tf.gather(batch, rows, axis=1, batch_dims=1), columns, axis=2, batch_dims=1)
        if scale:
            batch = tf.cast(batch, tf.float32) / 255.0
        return batch, tf.gather(numbers, order)

    dataset = tf.data.Dataset.range(1).map(planned).rebatch(size).map(gather, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(math.ceil(count / size)))
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options).prefetch(tf.data.AUTOTUNE)


def _corners(
    sides: tuple[int, ...], crop: tuple[int, int] | None, count: int, seed: int, epoch: int, training: bool
) -> NDArray[np.int64]:
    """Returns the upper left corner of each crop, (examples, 2), in the epoch's order; (examples, 0) without a crop."""
    if crop is None:
        return np.zeros((count, 0), np.int64)
    room = np.subtract(sides, crop)
    if not training:
        return np.tile(room // 2, (count, 1))
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch, _CROPS])))
    return random.integers(0, room + 1, (count, 2))
