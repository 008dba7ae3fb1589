"""Measuring, from data and model to a result, on loaders and steps of known length."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.fakes import FakeClock
from tests.planted import (
    IMAGES,
    Sleeper,
    SleepyDataset,
    a_batch,
    a_model,
    measure,
    planted,
    sequential,
    sleepy_model,
    tensorflow_only,
)
from unstall.profiles.measure import measure as measuring
from unstall.profiles.measure import schedule
from unstall.profiles.measure.ahead import Ahead
from unstall.profiles.measure.measure import shapes
from unstall.profiles.measure.schedule import epochs_for
from unstall.profiles.report.writing_files import to_json
from unstall.profiles.results.result import Result

STEPS = 40


def assert_sound(result: Result) -> None:
    """Holds a result against what is true of every one: strict JSON, and shares that sum to one."""
    document = json.loads(to_json(result.to_dict()))
    assert math.fsum(share for share in document["attribution"].values() if share is not None) == pytest.approx(1)
    assert document["loading_ratio"] == pytest.approx(1 - document["attribution"]["compute"])
    for sample in result.of("train"):
        assert sample.epoch_images == sample.epochs * STEPS * IMAGES


def bare_ms() -> float:
    """Returns what an epoch of a loader takes that does nothing: for its iterator, and to hand over its batches."""
    data, epochs_ms = sequential(Sleeper(0), STEPS).prefetch(1), []
    for _ in range(5):
        began_s = time.perf_counter()
        for _ in data:
            pass
        epochs_ms.append((time.perf_counter() - began_s) * 1e3)
    return statistics.median(epochs_ms)


@planted
@pytest.mark.claims
@pytest.mark.parametrize(("load_ms", "compute_ms", "bound"), [(40, 20, "input"), (10, 40, "compute")])
def test_the_loading_ratio_is_within_three_points_of_arithmetic(load_ms: float, compute_ms: float, bound: str) -> None:
    # tf.data's autotuner is off, so that the epochs' edges are short.
    data = sequential(Sleeper(load_ms), STEPS).prefetch(1)
    device = f"emulated:{IMAGES / compute_ms * 1e3}"
    result = measure(data, a_model(), device=device, rounds=5, name="planted")
    compute = STEPS * compute_ms
    load = STEPS * load_ms
    # The first batch is waited for, and then the slower of the two.
    epoch = max(load + compute_ms, load_ms + compute) + bare_ms()
    assert result.attribution.loading_ratio == pytest.approx(1 - compute / epoch, abs=0.03)
    assert result.attribution.bound == bound
    assert result.compute_images_per_sec == pytest.approx(1e3 * IMAGES / compute_ms, rel=0.1)
    assert result.loader_images_per_sec == pytest.approx(1e3 * IMAGES / load_ms, rel=0.15)
    assert_sound(result)


@tensorflow_only
@pytest.mark.parametrize(("device", "replays"), [("cpu", 2), (f"emulated:{IMAGES / 0.015}", 0)])
def test_a_model_that_sleeps_is_told_from_a_sequential_loader(device: str, replays: int, fake_clock: FakeClock) -> None:
    data, model = sequential(lambda: fake_clock.sleep(0.01), STEPS), sleepy_model(lambda: fake_clock.sleep(0.015))
    result = measure(data, model, device=device, rounds=2, name="planted")
    shares = result.attribution.shares
    assert result.attribution.loading_ratio == pytest.approx(10 / 25)
    assert (shares.prep_stall, shares.interference, shares.transfer) == pytest.approx((10 / 25, 0, 0), abs=1e-6)
    assert [sample.window for sample in result.samples].count("replay") == replays
    assert_sound(result)


@pytest.fixture(scope="module")
def short_windows() -> Iterator[Callable[[Any], int]]:
    """Makes windows short, where the times in them are not what is asserted; returns the epochs of a short window."""
    short = partial(epochs_for, window_s=0.2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "epochs_for", short)
        patch.setattr(schedule, "READY_WINDOW_S", 0.05)
        yield short


@pytest.fixture(scope="module")
def result(short_windows: Any) -> Result:
    return measure(SleepyDataset(1, steps=STEPS), a_model(), device="emulated:10000", rounds=4, name="mine")


def test_rounds_are_measured_as_often_as_asked(result: Result) -> None:
    rounds = {window: [sample.round for sample in result.of(window)] for window in ("resident", "train", "loader")}
    assert rounds == {"resident": [0, 1, 2, 3], "train": [0, 1, 2, 3], "loader": [0, 1, 2]}
    assert len(result.of("warmup")) == 1


def test_an_emulated_device_needs_no_replay(result: Result) -> None:
    assert result.of("replay") == []
    assert result.attribution.shares.transfer == 0


def test_a_window_of_training_is_as_many_whole_epochs_as_the_warmup_says(
    result: Result, short_windows: Callable[[Any], int]
) -> None:
    (warmup,) = result.of("warmup")
    for sample in result.of("train"):
        assert sample.epochs == short_windows(warmup)
        assert sample.epoch_images == sample.epochs * STEPS * IMAGES


def test_the_result_says_who_was_measured(result: Result) -> None:
    document = result.to_dict()
    assert (document["variant"], document["batch_size"]) == ("mine", IMAGES)
    assert document["device"] == {"kind": "emulated", "name": "emulated:10000"}
    assert document["model"].startswith("sequential")


@pytest.mark.parametrize(("steps", "steady"), [(12, 8), (14, 8)])
def test_steps_before_the_workers_have_filled_up_are_not_steady(steps: int, steady: int, short_windows: Any) -> None:
    data = SleepyDataset(1, steps=steps, workers=4)
    result = measure(data, a_model(), device="emulated:5000", rounds=1)
    (sample,) = result.of("train")
    assert len(sample.step_ns) == sample.epochs * steady
    assert result.subject.buffered_batches == 10


def test_how_far_a_loader_works_ahead_can_be_told(short_windows: Any) -> None:
    data = sequential(Sleeper(1), 12)
    result = measure(data, a_model(), device="emulated:5000", rounds=1, ahead=Ahead(parallel_batches=3))
    (sample,) = result.of("train")
    assert len(sample.step_ns) == sample.epochs * (12 - 3)


@pytest.mark.parametrize("kind", ["list", "callable"])
def test_what_fit_cannot_iterate_again_is_measured_an_epoch_at_a_time(kind: str, short_windows: Any) -> None:
    batches = [a_batch()] * 20
    data: Any = batches if kind == "list" else lambda: iter(batches)
    result = measure(data, a_model(), device="emulated:5000", rounds=2)
    assert [(sample.epochs, sample.epoch_images) for sample in result.of("train")] == [(1, 200)] * 2


def test_the_model_is_handed_back_as_it_was(short_windows: Any) -> None:
    model = a_model()
    model.make_train_function()
    real = model.train_function
    measure([a_batch()] * 10, model, device="emulated:50000", rounds=1)
    assert model.train_function is real
    model.fit([a_batch()[0]][0], a_batch()[1], verbose=0)


def test_a_model_of_several_inputs_is_measured(short_windows: Any) -> None:
    inputs = {name: keras.Input((2,), name=name) for name in ("left", "right")}
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(list(inputs.values()))))
    model.compile(optimizer="sgd", loss="mse")
    batch = ({name: np.zeros((IMAGES, 2), np.float32) for name in inputs}, np.zeros((IMAGES,), np.float32))
    result = measure(tf.data.Dataset.from_tensors(batch).repeat(20), model, rounds=1)
    assert result.subject.batch_size == IMAGES
    assert result.of("train")[0].epoch_images % (20 * IMAGES) == 0


def test_one_batch_of_each_size_is_traced() -> None:
    batches = [a_batch(10), a_batch(10), a_batch(3), a_batch(10)]
    assert [id(batch) for batch in shapes(batches)] == [id(batches[0]), id(batches[2])]


@pytest.mark.parametrize("rounds", [0, -1])
def test_no_rounds_are_refused(rounds: int) -> None:
    with pytest.raises(ValueError, match=f"`rounds` must be at least 1. Received: rounds={rounds}"):
        measure([a_batch()] * 5, a_model(), rounds=rounds)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ValueError, match="must be auto, cpu, gpu or emulated:RATE"):
        measure([a_batch()] * 5, a_model(), device="tpu")


def test_a_model_that_is_not_compiled_is_refused() -> None:
    with pytest.raises(ValueError, match="`model` must be compiled"):
        measure([a_batch()] * 5, keras.Sequential([keras.layers.Flatten()]), device="emulated:100")


def test_data_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="must be finite"):
        measure(tf.data.Dataset.from_tensors(a_batch()).repeat(), a_model(), device="emulated:100")
