"""Which calls of `fit`, `evaluate` and `predict` share a record, and what is held of a `fit`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from unstall.profiles.remedies.data import Failed
from unstall.profiles.script.profiler import Profiler
from unstall.profiles.script.seen import SeenFit
from unstall.profiles.trial.held_fit import opened_fit

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


def test_a_model_that_was_compiled_anew_is_not_tried_in_the_place_of_what_it_was(watched: Profiler) -> None:
    watched._tries = True
    model, data = a_model(), tf.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).batch(8)
    model.compile("sgd", "mse")
    model.fit(data, verbose=0)
    assert isinstance(watched.longest, SeenFit)
    with opened_fit(watched.longest, ["waiting"]):
        pass
    model.compile("sgd", "mae")
    model.train_on_batch(INPUTS, TARGETS)
    with (
        pytest.raises(Failed, match="has compiled its model anew since this fit"),
        opened_fit(watched.longest, ["waiting"]),
    ):
        pass


@pytest.mark.parametrize("lengths", [(8, 8), (8, 6)])
def test_one_number_of_steps_is_not_written_for_epochs_of_two_lengths(
    lengths: tuple[int, int], watched: Profiler
) -> None:
    watched._tries = True
    for length in lengths:  # as in a cross-validation, whose last fold is shorter
        model = a_model()
        model.compile("sgd", "mse")
        data = tf.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).batch(8).take(length)
        model.fit(data, epochs=2, verbose=0)
    assert isinstance(watched.longest, SeenFit)
    with opened_fit(watched.longest, ["edges"]) as (opened, _):
        assert ("repeat" in [remedy.name for remedy in opened.remedies]) is (len(set(lengths)) == 1)


class Pairs(keras.utils.PyDataset):
    def __init__(self) -> None:
        super().__init__()
        self.level = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return INPUTS[:8], TARGETS[:8]


@pytest.mark.parametrize("changes", [False, True])
def test_what_a_callback_changes_of_the_data_is_noted(changes: bool, watched: Profiler) -> None:
    watched._tries = True
    model, data = a_model(), Pairs()
    model.compile("sgd", "mse")
    hook = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: setattr(data, "level", epoch if changes else 0)
    )
    model.fit(data, epochs=3, verbose=0, callbacks=[hook])
    assert watched.longest is not None and watched.longest.changed == ("level" if changes else None)
