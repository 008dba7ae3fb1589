"""How fast a model predicts: exact on a fake clock, by the public `predict`; the model is as it was afterwards."""

from __future__ import annotations

import itertools
from typing import Any

import keras
import numpy as np
import pytest

from unstall.benchmarks.devices.inference import Inference
from unstall.profiles import clock
from unstall.profiles.devices import CPU, Device


@pytest.fixture
def model() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def test_an_emulated_device_does_not_predict(model: keras.Model) -> None:
    with pytest.raises(ValueError, match=r"`device` must compute, so that it can predict\. Received: .*'emulated:7'"):
        Inference(model, Device(kind="emulated", name="emulated:7", images_per_sec=7.0), np.zeros((3, 4)))


def test_the_rate_is_images_over_the_steady_steps(model: keras.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock is read twice a run: 100 ms for the 2 steps of the trial, 500 ms for the 6 that fill a window.
    readings = itertools.cycle((0, 100_000_000, 1_000_000_000, 1_600_000_000))
    monkeypatch.setattr(clock, "now_ns", lambda: next(readings))
    inference = Inference(model, CPU, np.zeros((5, 4), np.float32))
    assert inference.images_per_sec() == pytest.approx(5 / (0.6 / 6))


def test_it_predicts_on_the_batch_that_was_given_and_leaves_the_model_its_function(model: keras.Model) -> None:
    batch = np.arange(12, dtype=np.float32).reshape(3, 4)
    seen: list[Any] = []
    model.make_predict_function()
    real = model.predict_function

    def recorded(data: Any) -> Any:
        seen.append(data)
        return real(data)

    model.predict_function = recorded
    inference = Inference(model, CPU, batch)
    assert inference.images_per_sec() > 0
    assert model.predict_function is recorded
    assert len(seen) > 7 and all(np.array_equal(data[0][0], batch) for data in seen)
