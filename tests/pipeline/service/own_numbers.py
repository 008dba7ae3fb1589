"""A pipeline of a user's, with a Python function in it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

NUMBERS = 40


def doubled(value: Any) -> Any:
    return 2 * value


def make_numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(NUMBERS).map(
        lambda number: tf.ensure_shape(tf.numpy_function(doubled, [number], tf.int64), ())
    )


def make_others() -> tf.data.Dataset:
    return tf.data.Dataset.range(NUMBERS).map(
        lambda number: tf.ensure_shape(tf.numpy_function(abs, [number], tf.int64), ())
    )
