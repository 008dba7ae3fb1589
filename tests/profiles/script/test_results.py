"""What a watched `fit` comes to, and that time which nobody can name in it is flagged."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest

from profiles.devices import Device
from profiles.results.checks import check_claims
from profiles.results.result import Result
from profiles.samples import sample_from_dict
from profiles.script.profiler import Profiler
from profiles.script.results import Ceilings, FitRecord, result_of
from tests.builders import record_of, rounds_of
from tests.planted import planted

IMAGES = np.random.default_rng(0).random((320, 8, 8, 3)).astype(np.float32)
LABELS = IMAGES.mean((1, 2, 3))


def a_fit(**changed: Any) -> FitRecord:
    """Returns a `fit` of four equal epochs, 1,300 ns of steps and edges in each, and 999 of validation."""
    records = tuple(record_of(**{"epoch": number, **changed}) for number in range(4))
    return FitRecord(
        name="fit 1 (train.py:7)",
        model="network",
        data_kind="NumPy arrays",
        epochs=records,
        device=Device(kind="cpu", name="cpu"),
        ceilings=Ceilings(samples=(), reason="--no-ceilings"),
        canary_ns=5_000_000,
    )


def unclaimed(result: Result) -> list[str]:
    return [flag for flag in result.flags if flag.startswith("unclaimed: ")]


@pytest.mark.parametrize(
    ("claimed_ns", "flags"),
    [
        (2299, []),
        (2185, []),
        (2183, ["unclaimed: 5% of the time of fit is neither step nor edge"]),
        (1150, ["unclaimed: 50% of the time of fit is neither step nor edge"]),
        (3449, ["unclaimed: -50% of the time of fit is neither step nor edge"]),
    ],
)
def test_the_pieces_of_an_epoch_are_held_against_one_clock_around_it(claimed_ns: int, flags: list[str]) -> None:
    result = result_of(a_fit(claimed_ns=claimed_ns))
    assert {(one.outer_ns, one.claimed_ns) for one in result.samples} == {(2299, claimed_ns)}
    assert unclaimed(result) == flags


def test_epochs_whose_pieces_nobody_timed_are_said_to_be_unchecked() -> None:
    result = result_of(a_fit(claimed_ns=None))
    assert {(one.outer_ns, one.claimed_ns, one.unclaimed_ratio) for one in result.samples} == {(2299, None, None)}
    assert unclaimed(result) == []
    unchecked = "not checked whether steps and edges add up to the time of an epoch"
    assert f"{unchecked}: the batch hooks of callbacks were not timed" in result.contender.notes
    assert [sample_from_dict(one.to_dict()) for one in result.samples] == list(result.samples)


def test_only_what_callbacks_were_seen_to_take_is_left_out() -> None:
    # A step of 100 ms, of which 60 go by between the steps; the callbacks had 30 of them.
    times = {
        "steady_ns": 800_000_000,
        "between_ns": 480_000_000,
        "wall_ns": 1_100_000_000,
        "claimed_ns": 1,
    }
    seen = result_of(a_fit(**times, callbacks_ns=240_000_000))
    assert "callbacks took 30% of the time of the steps; it is left out" in " ".join(seen.contender.notes)
    unseen = result_of(a_fit(**times, callbacks_ns=0))
    assert "callbacks took" not in " ".join(unseen.contender.notes)


def test_a_device_that_runs_on_behind_the_host_is_said_to_be_unchecked() -> None:
    ceilings = (*rounds_of("resident", 10, 10, 10), *rounds_of("replay", 10, 10, 10))
    fit = replace(a_fit(asynchronous=True), ceilings=Ceilings(samples=ceilings))
    result = result_of(replace(fit, device=Device(kind="gpu", name="gpu")))
    assert unclaimed(result) == []
    unchecked = "not checked whether steps and edges add up to the time of an epoch"
    assert f"{unchecked}: the device runs on behind the host" in result.contender.notes


def test_the_model_alone_beside_a_fit_does_not_hide_what_is_unclaimed() -> None:
    ceilings = (*rounds_of("resident", 1e-5, 1e-5, 1e-5), *rounds_of("replay", 1e-5, 1e-5, 1e-5))
    fit = replace(a_fit(claimed_ns=1150), ceilings=Ceilings(samples=ceilings))
    assert unclaimed(result_of(fit)) == ["unclaimed: 50% of the time of fit is neither step nor edge"]


def network() -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(8, 3), layers.Flatten(), layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def watched(model: keras.Model, callbacks: Any = None, **options: Any) -> Result:
    """Trains five epochs of twenty steps."""
    profiler = Profiler(ceilings=False, max_steps=None)
    profiler.attach()
    try:
        model.fit(IMAGES, LABELS, batch_size=16, epochs=5, verbose=0, callbacks=callbacks, **options)
    finally:
        profiler.detach()
    (fit,) = profiler.fits
    return result_of(fit)


def test_keras_has_its_own_hooks_back() -> None:
    names = ("on_train_batch_begin", "on_train_batch_end")
    before = [vars(keras.callbacks.CallbackList)[name] for name in names]
    watched(network())
    assert [vars(keras.callbacks.CallbackList)[name] for name in names] == before


class OwnList(keras.callbacks.CallbackList):
    """Calls the hooks of its callbacks in its own way."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)


def test_hooks_of_a_list_that_has_its_own_are_not_timed() -> None:
    model = network()
    callbacks = OwnList([], add_history=True, model=model, epochs=5, steps=20)
    result = watched(model, callbacks)
    assert {one.claimed_ns for one in result.samples} == {None}
    assert any("batch hooks of callbacks were not timed" in note for note in result.contender.notes)


class StepsUnseen(keras.callbacks.Callback):
    """From the twelfth step of each epoch the model trains by a function of the script's own, which nobody watches."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 11:
            self.own = own = self.model.train_function

            def slower(iterator: Any) -> Any:
                time.sleep(0.02)
                return own.innermost(iterator)

            self.model.train_function = slower
        if batch == 19:
            self.model.train_function = self.own


@planted
def test_steps_that_nobody_saw_are_unclaimed() -> None:
    (flag,) = unclaimed(watched(network(), [StepsUnseen()]))
    assert "neither step nor edge" in flag


class Ordinary(keras.callbacks.Callback):
    """Works at every hook, also for longer than a step takes."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        time.sleep(0.01)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.001)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.004)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.001)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        time.sleep(0.01)


@planted
@pytest.mark.parametrize("callbacks", [[], [Ordinary()]], ids=["none", "at every hook"])
@pytest.mark.parametrize("validation", [{}, {"validation_data": (IMAGES[:64], LABELS[:64])}], ids=["", "validation"])
def test_an_ordinary_fit_is_claimed_whole(callbacks: list[keras.callbacks.Callback], validation: dict) -> None:
    result = watched(network(), callbacks, **validation)
    assert all(one.claimed_ns is not None for one in result.samples)
    assert unclaimed(result) == []
    assert check_claims({"train": result.of("train")}) == ()
