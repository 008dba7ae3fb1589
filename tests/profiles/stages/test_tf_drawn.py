"""Python code before a cache that draws is found, also by generators that nothing sees; other code is not accused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import tensorflow as tf

from unstall.profiles.stages.tf_drawn import python_drawn_before_cache


def of(function: Any) -> Any:
    """Returns a pipeline of whole numbers that a Python function is called with."""

    def called(x: Any) -> Any:
        return tf.numpy_function(function, [x], tf.float64)

    return tf.data.Dataset.range(8).map(called)


def plain(x: Any) -> Any:
    return np.float64(x)


def by_numpy(x: Any) -> Any:
    return np.float64(x) + (np.random.rand() < 1e-9)


def by_python(x: Any) -> Any:
    return np.float64(x) + (random.random() < 1e-9)


def unseen(x: Any) -> Any:
    return np.float64(x) + np.random.default_rng().random()


def batches() -> Any:
    for _ in range(4):
        yield np.random.rand(2)


def test_code_that_draws_before_a_cache_is_found() -> None:
    for function in (by_numpy, by_python, unseen):
        assert python_drawn_before_cache(of(function).cache().batch(2)) == ("called runs Python code (`PyFunc`)",)
    generator = tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec((2,), tf.float64))
    [found] = python_drawn_before_cache(generator.cache().prefetch(1))
    assert "runs Python code" in found


def test_code_after_the_cache_or_without_draws_is_not_accused() -> None:
    assert python_drawn_before_cache(of(plain).cache()) == ()
    assert python_drawn_before_cache(of(by_numpy).batch(2)) == ()
    drawn_after = of(plain).cache().map(lambda x: tf.numpy_function(by_numpy, [x], tf.float64))
    assert python_drawn_before_cache(drawn_after) == ()
    assert python_drawn_before_cache([1, 2]) == ()


def test_a_shuffle_or_draws_of_tensorflow_make_elements_differ_for_other_reasons() -> None:
    assert python_drawn_before_cache(of(plain).shuffle(8).cache()) == ()
    assert python_drawn_before_cache(of(plain).map(lambda x: x + tf.random.uniform((), dtype=tf.float64)).cache()) == ()
    assert python_drawn_before_cache(of(by_numpy).shuffle(8).cache()) != ()


def test_random_states_are_as_they_were() -> None:
    before = random.getstate(), str(np.random.get_state())
    python_drawn_before_cache(of(by_numpy).cache())
    python_drawn_before_cache(of(by_python).cache())
    assert (random.getstate(), str(np.random.get_state())) == before
