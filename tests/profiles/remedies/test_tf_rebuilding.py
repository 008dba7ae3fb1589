"""A pipeline built again with each change: equal elements, the user's own settings, and what must not be done."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from profiles.remedies import AS_WRITTEN
from profiles.remedies.tf_rebuilding import Rebuilding
from profiles.stages import CutError, nodes
from profiles.stages.tf_model import written

IMAGES = 200


def decode(index):
    return tf.ones((8, 8, 3)) * tf.cast(index, tf.float32), tf.cast(index % 2, tf.int32)


def augment(image, label):
    return tf.image.random_flip_left_right(image), label


def permute(index):
    return tf.random.experimental.index_shuffle(index, (1, 2), IMAGES - 1)


def both(index):
    return augment(*decode(index))


def flip(image):
    return image[:, ::-1] if np.random.default_rng().random() < 0.5 else image


def augment_in_python(image, label):
    return tf.ensure_shape(tf.numpy_function(flip, [image], tf.float32), (8, 8, 3)), label


def augment_eagerly(image, label):
    return tf.ensure_shape(tf.py_function(flip, [image], tf.float32), (8, 8, 3)), label


def sharpen(image, label):
    image = tf.numpy_function(lambda image: image, [image], tf.float32, stateful=False)
    return tf.ensure_shape(image, (8, 8, 3)), label


def both_in_python(index):
    return augment_in_python(*decode(index))


def source():
    return tf.data.Dataset.range(IMAGES)


PIPELINES = {
    "plain": lambda: source().map(decode).map(augment).batch(8),
    "shuffled": lambda: source().shuffle(IMAGES).map(decode).map(augment).batch(8),
    "permuted": lambda: source().map(permute).map(decode).map(augment).batch(8),
    "one function": lambda: source().map(both).batch(8),
    "frozen": lambda: source().map(both).cache().batch(8),
    "autotuned": lambda: source().map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(8).prefetch(tf.data.AUTOTUNE),
    "Python draws": lambda: source().map(decode).map(augment_in_python).batch(8),
    "eager Python draws": lambda: source().map(decode).map(augment_eagerly).batch(8),
    "Python draws nothing": lambda: source().map(decode).map(sharpen).map(augment).batch(8),
    "one function in Python": lambda: source().map(both_in_python).batch(8),
    "endless": lambda: source().map(decode).repeat().batch(8),
}


# An epoch of what is built, of 8 images each: 25 are all of an epoch.
BATCHES = 5


def taken_apart(name, limit_bytes=10**9):
    rebuilding = Rebuilding(PIPELINES[name](), calls=2, memory_limit_bytes=limit_bytes)
    built = rebuilding.changes(BATCHES)
    return rebuilding, {change.name: (change, dataset) for change, dataset in built.items()}


def seen(dataset) -> list[int]:
    return sorted(int(image[0, 0, 0]) for images, _ in dataset for image in images.numpy())


@pytest.mark.parametrize("name", PIPELINES)
def test_every_change_serves_the_same_images(name):
    _, built = taken_apart(name)
    assert next(iter(built)) == AS_WRITTEN
    assert {"prefetch", "AUTOTUNE", "parallel", "frozen"} <= built.keys()
    expected = seen(built[AS_WRITTEN][1])
    assert len(expected) == BATCHES * 8
    if name != "permuted":  # which draws what it serves
        assert expected == list(range(BATCHES * 8))
    for _, dataset in built.values():
        assert seen(dataset) == expected


def settings(dataset):
    return [
        (node.kind, *written(node.dataset), getattr(node.dataset, "_deterministic", None))
        for node in nodes(dataset)
        if node.kind != "take"
    ]


def test_the_pipeline_as_written_keeps_its_settings():
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    dataset = source().prefetch(7).map(decode, num_parallel_calls=3, deterministic=False).with_options(options)
    dataset = dataset.map(augment, num_parallel_calls=tf.data.AUTOTUNE).batch(4, num_parallel_calls=2)
    dataset = dataset.map(lambda *batch: batch).prefetch(tf.data.AUTOTUNE)
    again = Rebuilding(dataset, calls=2, memory_limit_bytes=0).as_written(BATCHES)
    assert settings(again) == settings(dataset)
    assert "take" in [node.kind for node in nodes(again)]
    assert again.element_spec == dataset.element_spec
    assert again.options().threading.private_threadpool_size == 3


def test_a_change_keeps_the_users_options_and_order():
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    dataset = source().map(decode, num_parallel_calls=3, deterministic=False).batch(8).with_options(options)
    built = {change.name: one for change, one in Rebuilding(dataset, calls=2, memory_limit_bytes=0).changes(5).items()}
    for name, autotune in (("parallel", None), ("frozen", False), ("AUTOTUNE", True)):
        assert built[name].options().threading.private_threadpool_size == 3
        assert built[name].options().autotune.enabled is autotune
    assert ("map", 2, None, False, "false") in settings(built["parallel"])


def test_a_whole_epoch_is_the_users_own_pipeline():
    rebuilding, _ = taken_apart("shuffled")
    assert settings(rebuilding.as_written(25)) == settings(PIPELINES["shuffled"]())
    assert len(seen(rebuilding.as_written(25))) == IMAGES


@pytest.mark.parametrize("name", ["plain", "shuffled", "permuted"])
def test_a_cache_goes_behind_the_last_stage_that_draws_nothing(name):
    rebuilding, built = taken_apart(name)
    cache, _ = built["cache"]
    assert cache.code.startswith(".cache() behind decode, ")
    assert ("moved behind the cache" in cache.code) is (name == "shuffled")
    assert cache.memory_bytes == IMAGES * (8 * 8 * 3 * 4 + 4)
    assert rebuilding.refused == []


@pytest.mark.parametrize(
    ("name", "behind"),
    [("Python draws", "decode"), ("eager Python draws", "decode"), ("Python draws nothing", "sharpen")],
)
def test_a_cache_goes_in_front_of_python_code_that_may_draw(name, behind):
    _rebuilding, built = taken_apart(name)
    cache, _ = built["cache"]
    assert cache.code.startswith(f".cache() behind {behind}, ")


def test_a_cache_behind_python_code_that_may_draw_is_refused():
    rebuilding, built = taken_apart("one function in Python")
    assert "cache" not in built
    [reason] = rebuilding.refused
    assert reason.startswith("cache: both_in_python runs Python code (`PyFunc`), which may draw")
    assert reason.endswith("or say that it draws nothing: tf.numpy_function(..., stateful=False).")


def test_a_cached_pipeline_still_draws_anew_and_orders_anew():
    _, built = taken_apart("shuffled")
    first, second = ([images.numpy() for images, _ in built["cache"][1]] for _ in range(2))
    orders = [[int(image[0, 0, 0]) for images in epoch for image in images] for epoch in (first, second)]
    assert sorted(orders[0]) == sorted(orders[1]) and orders[0] != orders[1]


def test_a_cache_behind_a_draw_is_refused():
    rebuilding, built = taken_apart("one function")
    assert "cache" not in built
    [reason] = rebuilding.refused
    assert reason.startswith("cache: random_flip_left_right in both is random")


def test_a_draw_that_is_frozen_already_is_said():
    rebuilding, _ = taken_apart("frozen")
    assert "random_flip_left_right in both: it is frozen by the cache behind it" in rebuilding.refused


def test_a_cache_that_does_not_fit_is_refused():
    rebuilding, _ = taken_apart("plain", limit_bytes=1000)
    [reason] = rebuilding.refused
    assert "cache behind decode" in reason and "more than --memory-limit" in reason


def test_a_pipeline_that_cannot_be_built_again_is_refused():
    dataset = (
        source()
        .map(decode)
        .group_by_window(
            key_func=lambda _, label: tf.cast(label, tf.int64), reduce_func=lambda _, one: one.batch(8), window_size=8
        )
    )
    with pytest.raises(CutError, match="group_by_window cannot be built again"):
        Rebuilding(dataset, calls=2, memory_limit_bytes=0)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("_PrefetchDataset", "_buffer_size", "a prefetch as it is written needs tf.data's private _PrefetchDataset."),
        (
            "_ParallelMapDataset",
            "_num_parallel_calls",
            "map cannot be built again: its num_parallel_calls is not known",
        ),
    ],
)
def test_a_setting_that_tensorflow_does_not_keep_is_named(kind, name, message, monkeypatch):
    dataset = source().map(decode, num_parallel_calls=2).batch(8).prefetch(2)
    [stage] = [node.dataset for node in nodes(dataset) if type(node.dataset).__name__ == kind]
    monkeypatch.delattr(stage, name)
    with pytest.raises(CutError, match=message):
        Rebuilding(dataset, calls=2, memory_limit_bytes=0)
