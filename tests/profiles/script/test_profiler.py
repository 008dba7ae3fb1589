"""Which calls of `fit`, `evaluate` and `predict` share a record; no call of a script fails by being watched."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from profiles.script.profiler import Profiler

INPUTS, TARGETS = np.zeros((64, 4), np.float32), np.zeros((64,), np.float32)


def a_model() -> Any:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])


def test_a_model_that_was_never_compiled_predicts_and_has_a_record(watched: Profiler) -> None:
    model = a_model()
    for _ in range(2):
        assert model.predict(INPUTS, batch_size=8, verbose=0).shape == (64, 1)
    [record] = watched.fits
    assert record.name.startswith("predict 1 (test_profiler.py:") and record.calls == 2


def test_fit_evaluate_and_predict_of_one_line_have_a_record_each(watched: Profiler) -> None:
    model, data = a_model(), {"x": INPUTS, "batch_size": 8, "verbose": 0}
    model.compile("sgd", "mse")
    for call in (model.fit, model.evaluate, model.predict):
        call(**data, **({} if call == model.predict else {"y": TARGETS}))
    names = [record.name.partition(" (")[0] for record in watched.fits]
    assert names == ["fit 1", "evaluate 1", "predict 1"]
    assert len({record.name.partition(" (")[2] for record in watched.fits}) == 1
