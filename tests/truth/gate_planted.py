"""A pipeline of known cost, and the same pipeline with more work planted in one of its stages."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
import tensorflow as tf

IMAGES, _BATCH = 512, 32
# About a millisecond of work an image, in blocks that release Python's lock. tf.data takes some 20 us around it, 2 % of
# the cost: the rate loses what is planted, within 2 %.
_BLOCKS, _BLOCK = 200, bytes(2**13)


def pipeline(loss: float = 0.0) -> Any:
    """Returns a sequential tf.data pipeline that serves (1 - loss) times the images/sec of a pipeline without a loss.

    The work is an amount and not a time: on a slower machine it takes longer, as real work does.
    """
    blocks = round(_BLOCKS / (1 - loss))

    def work(index: np.ndarray) -> np.ndarray:
        digest = hashlib.sha256()
        for _ in range(blocks):
            digest.update(_BLOCK)
        return np.full((8, 8, 3), digest.digest()[0] + 0 * index, np.uint8)

    def worked(index: Any) -> tuple[Any, Any]:
        image = tf.ensure_shape(tf.numpy_function(work, [index], tf.uint8), (8, 8, 3))
        return tf.cast(image, tf.float32) / 255, tf.cast(index % 2, tf.int32)

    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return tf.data.Dataset.range(IMAGES).map(worked).batch(_BATCH).with_options(options)


as_it_is = pipeline
slower_by_5 = functools.partial(pipeline, 0.05)
slower_by_10 = functools.partial(pipeline, 0.10)
slower_by_20 = functools.partial(pipeline, 0.20)
slower_by_50 = functools.partial(pipeline, 0.50)
