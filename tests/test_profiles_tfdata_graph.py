"""Random operations upstream of a cache: planted, and pipelines that have none there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from profiles.tfdata_graph import random_before_cache


def images() -> Any:
    return tf.data.Dataset.from_tensor_slices(np.zeros((4, 8, 8, 3), np.float32))


def augment(image: Any) -> Any:
    return tf.image.random_flip_left_right(image)


def stateless(image: Any) -> Any:
    return tf.image.stateless_random_brightness(image, 0.1, seed=(1, 2))


def noise(image: Any, stddev: float) -> Any:
    return image + tf.random.normal(tf.shape(image), stddev=stddev)


def generated(image: Any) -> Any:
    return image + GENERATOR.uniform(tf.shape(image))


def normalise(image: Any) -> Any:
    return image / 255


def in_branches(image: Any) -> Any:
    return tf.cond(tf.reduce_sum(image) > 0, lambda: augment(image), lambda: image)


def in_loops(image: Any) -> Any:
    return tf.while_loop(lambda n, _: n < 2, lambda n, one: (n + 1, stateless(one)), (0, image))[1]


def over_a_batch(batch: Any) -> Any:
    return tf.map_fn(augment, batch)


def in_cases(image: Any) -> Any:
    return tf.switch_case(tf.cast(tf.reduce_sum(image), tf.int32), [lambda: image, lambda: augment(image)])


def in_a_function(image: Any) -> Any:
    return tf.function(augment)(image)


def cached_shard(number: Any) -> Any:
    return images().skip(number).map(augment).cache()


def augmented_shard(number: Any) -> Any:
    return images().skip(number).map(augment)


def plain_shard(number: Any) -> Any:
    return images().skip(number).cache().map(augment)


GENERATOR = tf.random.Generator.from_seed(1)
FLIP = keras.layers.RandomFlip()
MODEL = keras.Sequential([keras.layers.Rescaling(1 / 255), keras.layers.RandomRotation(0.1)])


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (lambda: images().map(augment).cache(), ["random_flip_left_right in augment"]),
        (lambda: images().map(augment, num_parallel_calls=2).batch(2).cache().prefetch(1), ["in augment"]),
        (lambda: images().map(stateless).cache(), ["stateless_random_uniform in stateless"]),
        (lambda: images().map(functools.partial(noise, stddev=1.0)).cache(), ["random_normal in noise"]),
        (lambda: images().map(generated).cache(), ["in generated"]),
        (lambda: images().batch(2).map(lambda x: FLIP(x, training=True)).cache(), ["random_flip in a lambda"]),
        (lambda: images().batch(2).map(lambda x: MODEL(x, training=True)).cache(), ["random_rotation in a lambda"]),
        (lambda: images().map(in_branches).cache(), ["in in_branches"]),
        (lambda: images().map(in_loops).cache(), ["in in_loops"]),
        (lambda: images().batch(2).map(over_a_batch).cache(), ["in over_a_batch"]),
        (lambda: images().map(in_cases).cache(), ["in in_cases"]),
        (lambda: images().map(in_a_function).cache(), ["in in_a_function"]),
        (lambda: images().map(augment).map(normalise).shuffle(4).cache().repeat(2), ["in augment"]),
        (lambda: images().map(augment).map(stateless).cache(), ["in stateless", "in augment"]),
        (lambda: tf.data.Dataset.zip(images().map(augment), images()).cache(), ["in augment"]),
        (lambda: tf.data.Dataset.range(2).interleave(augmented_shard).cache(), ["in augmented_shard"]),
        (lambda: tf.data.Dataset.range(2).interleave(cached_shard), ["in cached_shard"]),
        (lambda: images().map(augment).cache().with_options(tf.data.Options()).take(2), ["in augment"]),
        (lambda: tf.data.Dataset.zip(images(), tf.data.Dataset.random(seed=1)).cache(), ["Dataset.random"]),
    ],
)  # fmt: skip
def test_random_operations_before_a_cache_are_named(build: Callable[[], Any], names: list[str]) -> None:
    found = random_before_cache(build())
    assert len(found) == len(names)
    assert [name for name, one in zip(names, found, strict=True) if name not in one] == []


def test_a_snapshot_freezes_as_well(tmp_path: Path) -> None:
    assert random_before_cache(images().map(augment).snapshot(str(tmp_path))) == ("random_flip_left_right in augment",)
    assert random_before_cache(images().snapshot(str(tmp_path)).map(augment)) == ()


@pytest.mark.parametrize(
    "build",
    [
        lambda: images().cache().map(augment),
        lambda: images().map(normalise).cache().map(stateless).batch(2),
        lambda: images().map(augment).batch(2),
        lambda: images().shuffle(4).cache(),
        lambda: images().shuffle(4, seed=1, reshuffle_each_iteration=False).map(normalise).cache(),
        lambda: tf.data.Dataset.range(2).interleave(plain_shard),
        lambda: tf.data.Dataset.sample_from_datasets([images(), images()], seed=1).cache(),
        lambda: images().map(lambda x: tf.numpy_function(np.negative, [x], tf.float32)).cache(),
        lambda: images().batch(2).map(lambda x: FLIP(x, training=False)).cache(),
    ],
    ids=[
        "after",
        "after, stateless",
        "no cache",
        "shuffle",
        "seeded shuffle",
        "after, in interleave",
        "a mixture",
        "python",
        "not training",
    ],
)
def test_a_pipeline_without_them_is_clean(build: Callable[[], Any]) -> None:
    assert random_before_cache(build()) == ()


@pytest.mark.parametrize(
    "data", [[1, 2], np.zeros(3), iter([]), keras.utils.PyDataset()], ids=["list", "array", "iterator", "PyDataset"]
)
def test_what_is_no_dataset_has_none(data: Any) -> None:
    assert random_before_cache(data) == ()


def test_a_dataset_that_cannot_be_serialised_is_searched_all_the_same() -> None:
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    data = images().map(lambda x: (augment(x), table.size())).cache()
    assert len(random_before_cache(data)) == 1


def test_the_pipeline_is_not_run() -> None:
    calls: list[int] = []

    def count(image: Any) -> Any:
        calls.append(1)
        return image

    data = images().map(lambda x: augment(tf.numpy_function(count, [x], tf.float32))).cache()
    assert len(random_before_cache(data)) == 1
    assert calls == []
