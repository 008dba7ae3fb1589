"""A part of the cold work, done by tf.data's threads: pixels are handed over, and nothing else.

The difference to the same part done by plain threads is what tf.data's threads and its hand-over cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from unstall.benchmarks.evidence.peers.loaders.parts import warping
from unstall.benchmarks.evidence.peers.loaders.work import BATCH, Job, Loader, Sink


def read_decode_warp_tf_data(job: Job) -> Loader:
    return ThroughTfData(warping(job), images=job.images, calls=int(job.workers or 1))


class ThroughTfData:
    """A loader without labels: tf.data calls the work for each batch, with two batches ahead.

    Args:
      work: makes the batch of the images with the given indices.
      calls: how many calls run at once.
    """

    def __init__(self, work: Callable[[np.ndarray], np.ndarray], *, images: int, calls: int) -> None:
        self._work, self._images, self._calls = work, images, calls

    def feed(self, epochs: int, sink: Sink) -> None:
        options = tf.data.Options()
        options.autotune.enabled = False
        dataset = tf.data.Dataset.range(self._images).batch(BATCH).repeat(epochs)
        dataset = dataset.map(self._call, num_parallel_calls=self._calls).with_options(options).prefetch(2)
        sink.begin()
        for _ in dataset:
            pass
        sink.count(epochs * self._images)

    def _call(self, rows: Any) -> Any:
        return tf.numpy_function(self._work, [rows], tf.uint8)
