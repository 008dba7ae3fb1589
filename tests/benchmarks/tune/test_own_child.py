"""Advice for a user's own pipeline: what is built from it is the same work, and what must not be done is refused."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.tune import own_child
from benchmarks.tune.own_child import PipelineError, UserPipeline, call
from benchmarks.tune.results import AS_WRITTEN
from profiles.devices import parse_device
from profiles.measure.windows import Windows

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


@pytest.fixture(scope="module")
def windows():
    layers = [keras.Input((8, 8, 3)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(loss="mse")
    one = Windows(model, parse_device("emulated:1000000"))
    one.prepare(list(PIPELINES["plain"]().take(1)))
    return one


def taken_apart(name, windows, limit_bytes=10**9):
    pipeline = UserPipeline(PIPELINES[name](), windows, limit_bytes)
    return pipeline, pipeline.facts()


def seen(dataset) -> list[int]:
    return sorted(int(image[0, 0, 0]) for images, _ in dataset for image in images.numpy())


@pytest.mark.parametrize("name", PIPELINES)
def test_every_change_serves_the_same_images(name, windows, monkeypatch):
    if name == "endless":  # as many images as a second holds are more than it takes
        monkeypatch.setattr(own_child, "_EPOCH_S", 0.05)
    pipeline, facts = taken_apart(name, windows)
    assert facts.changes[0].name == AS_WRITTEN
    expected = seen(pipeline._built[AS_WRITTEN])
    assert {"prefetch", "AUTOTUNE", "parallel", "frozen"} <= {one.name for one in facts.changes}
    for one in facts.changes:
        dataset = pipeline._built[one.name]
        if name == "shuffled":  # each takes its part of the order; none comes twice
            assert len(set(seen(dataset))) == len(seen(dataset))
        else:
            assert seen(dataset) == expected


@pytest.mark.parametrize("name", ["plain", "shuffled", "permuted"])
def test_a_cache_goes_behind_the_last_stage_that_draws_nothing(name, windows):
    _, facts = taken_apart(name, windows)
    [cache] = [one for one in facts.changes if one.name == "cache"]
    assert cache.code.startswith(".cache() behind decode, ")
    assert ("moved behind the cache" in cache.code) is (name == "shuffled")
    assert cache.memory_bytes == IMAGES * (8 * 8 * 3 * 4 + 4)
    assert facts.refused == ()


@pytest.mark.parametrize(
    ("name", "behind"),
    [("Python draws", "decode"), ("eager Python draws", "decode"), ("Python draws nothing", "sharpen")],
)
def test_a_cache_goes_in_front_of_python_code_that_may_draw(name, behind, windows):
    _, facts = taken_apart(name, windows)
    [cache] = [one for one in facts.changes if one.name == "cache"]
    assert cache.code.startswith(f".cache() behind {behind}, ")


def test_a_cache_behind_python_code_that_may_draw_is_refused(windows):
    _, facts = taken_apart("one function in Python", windows)
    assert "cache" not in {one.name for one in facts.changes}
    [reason] = facts.refused
    assert reason.startswith("cache: both_in_python runs Python code (`PyFunc`), which may draw")
    assert reason.endswith("or say that it draws nothing: tf.numpy_function(..., stateful=False).")


def test_a_cached_pipeline_still_draws_anew_and_orders_anew(windows):
    pipeline, _ = taken_apart("shuffled", windows)
    first, second = ([images.numpy() for images, _ in pipeline._built["cache"]] for _ in range(2))
    orders = [[int(image[0, 0, 0]) for images in epoch for image in images] for epoch in (first, second)]
    assert sorted(orders[0]) == sorted(orders[1]) and orders[0] != orders[1]


def test_a_cache_behind_a_draw_is_refused(windows):
    _, facts = taken_apart("one function", windows)
    assert "cache" not in {one.name for one in facts.changes}
    [reason] = facts.refused
    assert reason.startswith("cache: random_flip_left_right in both is random")


def test_a_draw_that_is_frozen_already_is_said(windows):
    _, facts = taken_apart("frozen", windows)
    assert "random_flip_left_right in both: it is frozen by the cache behind it" in facts.refused


def test_a_cache_that_does_not_fit_is_refused(windows):
    _, facts = taken_apart("plain", windows, limit_bytes=1000)
    [reason] = facts.refused
    assert "cache behind decode" in reason and "more than --memory-limit" in reason


def test_a_change_is_measured(windows):
    pipeline, _ = taken_apart("plain", windows)
    for name in (AS_WRITTEN, "cache"):
        sample = pipeline.window(name, 0)
        assert sample.images > 0 and sample.s_per_image > 0


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("boom", "RuntimeError: no."),
        ("three", "must return a tf.data.Dataset. Received: int."),
        ("missing", "AttributeError: "),
    ],
)
def test_a_function_that_gives_no_pipeline_is_said_in_one_line(function, expected, monkeypatch):
    def boom():
        raise RuntimeError("no\nreally")

    monkeypatch.setitem(sys.modules, "users_own", SimpleNamespace(boom=boom, three=lambda: 3))
    with pytest.raises(PipelineError, match=expected) as caught:
        call(f"users_own:{function}")
    assert "\n" not in str(caught.value)


def test_a_function_is_called(monkeypatch):
    monkeypatch.setitem(sys.modules, "users_own", SimpleNamespace(make=PIPELINES["plain"]))
    assert np.array_equal(next(iter(call("users_own:make")))[1].numpy(), [0, 1] * 4)
