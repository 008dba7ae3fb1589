"""Counts the images that leave a pipeline of tf.data's, in the process that makes them."""

from __future__ import annotations

import threading
from typing import Any

import tensorflow as tf

from unstall.profiles import clock


class Counter:
    """Counts images; threads of tf.data's add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._images = 0

    @property
    def images(self) -> int:
        with self._lock:
            return self._images

    def add(self, images: int) -> None:
        with self._lock:
            self._images += images


def counted(dataset: Any, counter: Counter, batch_size: int, *, delay_ms: int = 0) -> Any:
    """Counts the images of each batch, in front of whatever divides the dataset among trainers.

    The function that counts is stateful, so that tf.data neither drops it nor moves a `shard` to the other side of it:
    each image that was decoded passes here, whether or not this process trains on it.

    Args:
      dataset: of `(images, labels)`, in whole batches.
      batch_size: of each batch. Without it Keras could not divide a dataset whose last stage is a `map`.
      delay_ms: for how long each batch is held back.
    """

    def count(labels: Any) -> Any:
        counter.add(len(labels))
        if delay_ms:
            clock.sleep_until_ns(clock.now_ns() + delay_ms * 1_000_000)
        return labels

    def passes(images: Any, labels: Any) -> tuple[Any, Any]:
        shape = labels.shape
        labels = tf.numpy_function(count, [labels], labels.dtype)
        labels = tf.ensure_shape(tf.ensure_shape(labels, shape), (batch_size, *shape[1:]))
        return tf.ensure_shape(images, (batch_size, *images.shape[1:])), labels

    return dataset.map(passes)
