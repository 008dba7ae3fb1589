"""How far a tf.data pipeline works ahead, as its graph says; and what comes of it for planted loaders."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.fakes import FakeClock
from tests.planted import (
    IMAGES,
    SleepyDataset,
    a_batch,
    a_model,
    as_written,
    planted,
    sequential,
    tensorflow_only,
)
from unstall.profiles import profiling
from unstall.profiles.data import Adapter
from unstall.profiles.measure.ahead import Ahead
from unstall.profiles.stage_table import StageTable
from unstall.profiles.stages import tf_ahead as reading
from unstall.profiles.stages.tf_ahead import ahead_of

pytestmark = tensorflow_only

AUTO = tf.data.AUTOTUNE
BATCH = 32


def load(index: Any) -> Any:
    return tf.zeros((2, 2, 3)), tf.zeros(())


def source(images: int = 3200) -> tf.data.Dataset:
    return tf.data.Dataset.range(images)


def in_batches(index: Any) -> Any:
    return tf.zeros((BATCH, 2, 2, 3)), tf.zeros((BATCH,))


# (pipeline, parallel batches, buffered batches, shuffled batches), with two CPUs
PIPELINES: dict[str, tuple[Callable[[], tf.data.Dataset], int, int, int]] = {
    "sequential": (lambda: source().map(load).batch(BATCH), 1, 0, 0),
    "a prefetch": (lambda: source().map(load).batch(BATCH).prefetch(10), 1, 10, 0),
    "an autotuned prefetch": (lambda: source().map(load).batch(BATCH).prefetch(AUTO), 1, 4, 0),
    "a prefetch of images": (lambda: source().map(load).prefetch(64).batch(BATCH), 1, 2, 0),
    "parallel images": (lambda: source().map(load, num_parallel_calls=16).batch(BATCH), 2, 1, 0),
    "many parallel images": (lambda: source().map(load, num_parallel_calls=64).batch(BATCH), 3, 2, 0),
    "parallel batches": (lambda: source().map(load).batch(BATCH, num_parallel_calls=16), 16, 16, 0),
    "a parallel map of batches": (
        lambda: source().batch(BATCH).map(in_batches, num_parallel_calls=16).prefetch(4),
        16,
        20,
        0,
    ),
    "an autotuned map of batches": (lambda: source().batch(BATCH).map(in_batches, num_parallel_calls=AUTO), 2, 2, 0),
    "a source of batches": (lambda: source().map(in_batches, num_parallel_calls=3), 3, 3, 0),
    "batches of batches": (lambda: source().map(load, num_parallel_calls=16).batch(8).unbatch().batch(BATCH), 1, 0, 0),
    "parallel files": (
        lambda: source(100).interleave(lambda at: source(BATCH), num_parallel_calls=16).map(load).batch(8),
        3,
        2,
        0,
    ),
    "a shuffle of indices": (lambda: source().shuffle(1600).map(load).batch(BATCH), 1, 0, 0),
    "a shuffle of images": (lambda: source().map(load).shuffle(1600).batch(BATCH), 1, 0, 50),
    "a shuffle of all images": (lambda: source().map(load).shuffle(10**9).batch(BATCH), 1, 0, 100),
    "a shuffle of arrays": (
        lambda: tf.data.Dataset.from_tensor_slices(a_batch(320)).shuffle(320).map(lambda *pair: pair).batch(8),
        1,
        0,
        0,
    ),
    "behind a full cache": (
        lambda: source().map(load, num_parallel_calls=64).shuffle(99).cache().batch(BATCH),
        1,
        0,
        0,
    ),
    "two sources": (
        lambda: tf.data.Dataset.zip((source().batch(BATCH, num_parallel_calls=3), source().batch(BATCH).prefetch(5))),
        3,
        8,
        0,
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_graph_says_how_far_it_works_ahead(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_cores", lambda: 2)
    make, parallel, buffered, shuffled = PIPELINES[name]
    expected = Ahead(parallel_batches=parallel, buffered_batches=buffered, shuffled_batches=shuffled)
    assert ahead_of(make()) == expected
    assert ahead_of(as_written(make())) == expected


@pytest.fixture
def no_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the stages out, which are not looked at here."""
    monkeypatch.setattr(Adapter, "stages_and_lines", lambda *_, **__: (StageTable(cores=2, reason=""), ()))


def sixteen_at_once(batches: int, load_ms: float) -> tf.data.Dataset:
    """Returns batches that sixteen threads make at the same time, each in `load_ms`."""

    def sleep(index: np.ndarray) -> np.ndarray:
        time.sleep(load_ms / 1e3)
        return index

    images, labels = (tf.constant(part) for part in a_batch())

    def element(index: tf.Tensor) -> Any:
        with tf.control_dependencies([tf.numpy_function(sleep, [index], tf.int64)]):
            return tf.identity(images), tf.identity(labels)

    options = tf.data.Options()
    options.threading.private_threadpool_size = 16
    return as_written(tf.data.Dataset.range(batches).map(element, num_parallel_calls=16)).with_options(options)


@pytest.mark.long
@planted
@pytest.mark.usefixtures("no_stages")
@pytest.mark.parametrize(("batches", "waves", "steady"), [(24, 2, False), (52, 4, True)])
def test_a_batch_parallel_map_on_a_short_epoch_is_no_faster_than_it_is(batches: int, waves: int, steady: bool) -> None:
    """Sixteen calls make 24 batches in two waves: the rate of all but the first batch would be 44 % too fast."""
    load_ms = 150
    result = profiling.profile(
        sixteen_at_once(batches, load_ms), a_model(), device="emulated:1e6", rounds=1, budget_s=0
    ).result
    true_rate = (16 * IMAGES if steady else batches * IMAGES / waves) / load_ms * 1e3
    assert result.images_per_sec == pytest.approx(true_rate, rel=0.1)
    assert result.epoch_images_per_sec == pytest.approx(batches * IMAGES / (waves * load_ms) * 1e3, rel=0.2)
    assert any(str(flag).startswith("short: the loader makes up to 16 ") for flag in result.flags) is not steady


@pytest.mark.usefixtures("no_stages")
@pytest.mark.parametrize("kind", ["tf.data", "PyDataset"])
def test_a_users_buffers_are_held_against_the_length_of_the_epoch(kind: str, fake_clock: FakeClock) -> None:
    """A batch takes 0.1 ms to load, and 20 ms to train on."""

    def load() -> None:
        fake_clock.sleep(1e-4)

    data: Any = sequential(load, 24).prefetch(10)
    if kind == "PyDataset":
        data = SleepyDataset(0, steps=24, workers=2)
        data.load = load
    result = profiling.profile(data, a_model(), device="emulated:500", rounds=1, budget_s=0).result
    assert "buffered: up to 10 of an epoch's 24 batches were made ahead of its end" in result.remarks


@pytest.mark.usefixtures("no_stages")
def test_a_shuffle_behind_the_work_takes_its_time_before_the_first_step(fake_clock: FakeClock) -> None:
    """A batch takes 20 ms to load, and 10 ms to train on. The shuffle loads half of the batches before the first step.

    Without the first step, a batch would seem to take 20.4 ms.
    """
    data = as_written(sequential(lambda: fake_clock.sleep(0.02), 24).shuffle(12))
    result = profiling.profile(data, a_model(), device="emulated:1000", rounds=1, budget_s=0).result
    holds = "buffered: a shuffle holds up to 12 of an epoch's 24 batches"
    assert any(str(flag).startswith(holds) for flag in result.flags)
    assert IMAGES / result.images_per_sec == pytest.approx(0.03)
    assert result.attribution.loading_ratio == pytest.approx(20 / 30)
