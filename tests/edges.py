"""Loaders with equally fast steady steps and different epoch edges, made of sleeps. A child measures them by name.

This file imports nothing of ours, because for a child it is a user's own module.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

BATCHES, IMAGES = 16, 6
# Seconds of a batch in steady steps; of decoding an image; and of a slow start, once in each epoch.
_BATCH_S, _DECODE_S, _START_S = 0.004, 0.001, 0.1


def _shuffled(decode_s: float) -> Any:
    """Returns batches behind a shuffle that holds the whole data set: all images are decoded before the first batch."""

    def decode(index: np.ndarray) -> np.ndarray:
        time.sleep(decode_s)
        return np.zeros((2, 2, 3), np.float32)

    def hand_over(images: np.ndarray) -> np.ndarray:
        time.sleep(_BATCH_S)
        return images

    def decoded(index: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(decode, [index], tf.float32), (2, 2, 3))

    def handed_over(images: Any) -> Any:
        images = tf.ensure_shape(tf.numpy_function(hand_over, [images], tf.float32), (IMAGES, 2, 2, 3))
        return images, tf.zeros((IMAGES,))

    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    images = tf.data.Dataset.range(BATCHES * IMAGES).map(decoded).shuffle(BATCHES * IMAGES)
    return images.batch(IMAGES, drop_remainder=True).map(handed_over).with_options(options)


def decoded_once() -> Any:
    return _shuffled(_DECODE_S)


def decoded_twice() -> Any:
    return _shuffled(2 * _DECODE_S)


class _Batches:
    """Batches that take equally long each, after a start that takes `start_s` seconds."""

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s

    def __iter__(self) -> Iterator[Any]:
        time.sleep(self._start_s)
        for _ in range(BATCHES):
            time.sleep(_BATCH_S)
            yield np.zeros((IMAGES, 2, 2, 3), np.float32), np.zeros((IMAGES,), np.float32)


def quick_start() -> Any:
    return _Batches(0.0)


def slow_start() -> Any:
    return _Batches(_START_S)
