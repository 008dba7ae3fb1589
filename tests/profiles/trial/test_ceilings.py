"""The model alone, after its `fit`: measured, and everything put back."""

from __future__ import annotations

import random
import re
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.builders import a_sample
from unstall.profiles.measure.windows import Windows
from unstall.profiles.script.callback import WatchCallback
from unstall.profiles.trial import ceilings
from unstall.profiles.trial.ceilings import NotPossible, measure_ceilings, own_step, put_back

IMAGES = np.random.default_rng(0).random((70, 8, 8, 3)).astype(np.float32)
LABELS = IMAGES.mean((1, 2, 3))


class Largest(keras.metrics.Metric):
    """A metric of a user's own."""

    def __init__(self, name="largest"):
        super().__init__(name=name)
        self.largest = self.add_weight(name="largest", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(y_pred)))

    def result(self):
        return self.largest


@pytest.fixture(autouse=True)
def short_windows(request, monkeypatch):
    """Makes the windows short: what is asserted is what they leave behind. One test is about how they are planned.

    Several steps in a call, which take a second to trace, are left to the tests about them.
    """
    if request.function is not test_slow_steps_get_short_windows_and_those_of_which_ten_do_not_fit_none:
        monkeypatch.setattr(ceilings, "READY_WINDOW_S", 0.02)
        monkeypatch.setattr(ceilings, "_MOST_ROUNDS", 3)  # beside other tests no round is quiet
    if request.function not in (
        test_a_model_that_was_profiled_goes_on_as_one_that_was_not,
        test_an_error_with_several_steps_in_a_call_leaves_the_rate_of_the_model,
    ):
        monkeypatch.setattr(ceilings, "_LONGEST_STEP_TOGETHER_S", 0.0)


def layers():
    return [
        keras.layers.Conv2D(8, 3),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.3),
        keras.layers.Flatten(),
        keras.layers.Dense(1),
    ]


def functional():
    return keras.Sequential([keras.Input((8, 8, 3)), *layers()])


class Subclassed(keras.Model):
    """With state that Keras does not know of: a variable of TensorFlow's, in a step of its own."""

    def __init__(self):
        super().__init__()
        self.blocks = layers()
        self.seen = tf.Variable(0, dtype=tf.int64)

    def call(self, inputs, training=False):
        for block in self.blocks:
            inputs = block(inputs, training=training) if isinstance(block, keras.layers.Dropout) else block(inputs)
        return inputs

    def train_step(self, data):
        self.seen.assign_add(1)
        return super().train_step(data)


KINDS = {"functional": functional, "subclassed": Subclassed}


def compiled(kind, **options):
    keras.utils.clear_session()  # Keras 3.8 keeps its global generator when it is given a seed
    keras.utils.set_random_seed(1)
    model = KINDS[kind]()
    model.compile(keras.optimizers.Adam(use_ema=True), "mse", metrics=["mae", Largest()], **options)
    return model


def data():
    return tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(16)


def watched_fit(model, epochs=3):
    callback = WatchCallback(keep_batches=4)
    model.fit(data(), epochs=epochs, verbose=0, callbacks=[callback])
    return callback.watch


@pytest.fixture(scope="module")
def fitted():
    """A functional model that was trained, and the watch of that `fit`; each test leaves the model as it was."""
    model = compiled("functional")
    return model, watched_fit(model)


def state(model):
    """All that a training run goes on from, as bytes; and what is drawn next."""
    variables = [*model.variables, *model.optimizer.variables, *([model.seen] if hasattr(model, "seen") else [])]
    values = [np.asarray(one).tobytes() for one in variables]
    return values, random.getstate(), np.random.get_state()[1].tolist(), model.stop_training, id(model.history)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["functional", pytest.param("subclassed", marks=pytest.mark.claims)])
def test_a_model_that_was_profiled_goes_on_as_one_that_was_not(kind):
    ran_on = []
    for profiled in (False, True):
        model = compiled(kind)
        watch = watched_fit(model)
        before, function = state(model), model.train_function
        if profiled:
            found = measure_ceilings(model, watch, first_round=3)
            assert found.reason is None
            rounds = len(found.samples) // 2  # more where others take the cores beside some
            assert rounds >= 3
            windows = [sample.window for sample in found.samples]
            assert all(sorted(windows[at : at + 2]) == ["replay", "resident"] for at in range(0, 2 * rounds, 2))
            assert [sample.round for sample in found.samples] == [3 + at // 2 for at in range(2 * rounds)]
            assert found.step_ns is not None and min(found.step_ns) > 0
            assert state(model) == before
            assert (model.train_function, model.steps_per_execution) == (function, 1)
        drawn = (random.random(), np.random.random(), float(tf.random.uniform(())), float(keras.random.uniform(())))
        history = model.fit(data(), epochs=2, verbose=0).history
        ran_on.append((state(model)[0], history, drawn))
    assert ran_on[0] == ran_on[1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_everything_is_put_back_after_an_error_in_the_middle(fitted, monkeypatch, error):
    model, watch = fitted
    before = state(model)
    replay = Windows.replay

    def broken(windows, batches, *, steps, round_):
        replay(windows, batches, steps=steps, round_=round_)
        raise error

    monkeypatch.setattr(Windows, "replay", broken)
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            measure_ceilings(model, watch, first_round=0)
    else:
        assert "ZeroDivisionError" in measure_ceilings(model, watch, first_round=0).reason
    assert state(model) == before
    assert model.train_function.__module__.startswith("keras.")


def test_attributes_of_model_and_layers_are_put_back(fitted):
    model, _ = fitted
    with put_back(model):
        model.stop_training = "changed"
        model.new = 1
        vars(model.layers[0])["counted"] = 7
        del vars(model)["history"]
    assert model.stop_training is False
    assert not hasattr(model, "new")
    assert not hasattr(model.layers[0], "counted")
    assert model.history is not None


def test_other_models_are_left_alone(fitted):
    model, _ = fitted
    other = functional()
    before = state(model)
    with put_back(model):
        for weight in (*model.weights, *other.weights):
            weight.assign(weight + 1)
        changed = [np.asarray(weight) for weight in other.weights]
    assert all(np.array_equal(one, np.asarray(now)) for one, now in zip(changed, other.weights, strict=True))
    assert state(model) == before


class Drawing(keras.layers.Layer):
    def call(self, inputs):
        return inputs + tf.random.uniform(tf.shape(inputs))


class Candidates(keras.layers.Layer):
    def call(self, inputs):
        drawn, *_ = tf.random.log_uniform_candidate_sampler([[1]], 1, 2, True, 100)
        return inputs + tf.cast(drawn[0], tf.float32)


class Looking(keras.layers.Layer):
    """Reads a table: stateful, and leaves nothing behind."""

    def __init__(self):
        super().__init__()
        initializer = tf.lookup.KeyValueTensorInitializer([1], [0.5])
        self.table = tf.lookup.StaticHashTable(initializer, 0.0)

    def call(self, inputs):
        return inputs + self.table.lookup(tf.ones((1,), tf.int32))


class InPython(keras.layers.Layer):
    def call(self, inputs):
        out = tf.numpy_function(lambda array: array, [inputs], tf.float32)
        return tf.ensure_shape(out, inputs.shape)


class OwnFit(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(keras.layers.Flatten()(inputs))

    def fit(self, *arguments, **options):
        return super().fit(*arguments, **options)


@pytest.mark.parametrize(
    ("layer", "options", "reason"),
    [
        (Drawing, {}, "RandomUniform, whose state cannot be put back"),
        (Candidates, {}, "LogUniformCandidateSampler, whose state"),
        (InPython, {}, "EagerPyFunc|PyFunc"),
        (None, {"run_eagerly": True}, "runs eagerly"),
        (None, {"steps_per_execution": 2}, "2 steps a call"),
    ],
)
def test_what_cannot_be_put_back_is_not_run_and_said(layer, options, reason):
    front = [layer()] if layer else []
    model = keras.Sequential([keras.Input((8, 8, 3)), *front, keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **options)
    watch = watched_fit(model, epochs=1)
    before = state(model)
    found = measure_ceilings(model, watch, first_round=0)
    assert found.samples == ()
    assert re.search(reason, found.reason)
    assert state(model) == before


@pytest.mark.parametrize(("layer", "refused"), [(Drawing, False), (Candidates, True), (InPython, True)])
def test_once_the_script_has_ended_a_step_may_draw_and_do_nothing_else(layer, refused):
    model = keras.Sequential([keras.Input((8, 8, 3)), layer(), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    watch = watched_fit(model, epochs=1)
    with pytest.raises(NotPossible) if refused else nullcontext():
        own_step(model, watch.batch_spec, ended=True)


def test_a_step_that_only_reads_is_run():
    model = keras.Sequential([keras.Input((8, 8, 3)), Looking(), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    watch = watched_fit(model, epochs=1)
    found = measure_ceilings(model, watch, first_round=0)
    assert found.samples, found.reason


def test_a_fit_of_the_users_own_is_not_called():
    model = OwnFit()
    model.compile("sgd", "mse")
    found = measure_ceilings(model, watched_fit(model, epochs=1), first_round=0)
    assert found.reason == "its fit or its train function is not Keras' own"


def test_a_copy_that_does_not_fit_is_not_made(monkeypatch):
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    watch = watched_fit(model, epochs=1)

    class Full:
        available = 1000

    monkeypatch.setattr(ceilings.psutil, "virtual_memory", lambda: Full)
    assert "would not fit into memory" in measure_ceilings(model, watch, first_round=0).reason


def test_long_steps_are_not_tried_several_in_a_call(fitted, monkeypatch):
    monkeypatch.setattr(ceilings, "_LONGEST_STEP_TOGETHER_S", 0.0)
    assert measure_ceilings(*fitted, first_round=3).step_ns is None


def test_an_error_with_several_steps_in_a_call_leaves_the_rate_of_the_model(fitted, monkeypatch):
    def fail(*_):
        raise ValueError("no such batch")

    monkeypatch.setattr(ceilings, "_fit_ns", fail)
    found = measure_ceilings(*fitted, first_round=3)
    assert (found.step_ns, found.reason) == (None, None) and found.samples


@pytest.mark.parametrize(("step_s", "steps"), [(0.001, 300), (0.05, 6), (0.11, 6), (0.13, 0), (2.0, 0)])
def test_slow_steps_get_short_windows_and_those_of_which_ten_do_not_fit_none(step_s, steps):
    assert ceilings._plan(step_s, 5.0, kept=4) == steps


def test_steps_that_are_much_faster_without_the_loader_are_measured_all_the_same(fitted, monkeypatch):
    monkeypatch.setattr(ceilings, "_step_s", lambda watch: 0.3)
    found = measure_ceilings(*fitted, first_round=3)
    assert found.reason is None and len(found.samples) == 6
    monkeypatch.setattr(ceilings, "_step_s", lambda watch: 3.0)
    assert "a step takes 3 s, so that too few fit into 5 s" in measure_ceilings(*fitted, first_round=3).reason


def test_steps_that_are_slower_than_in_fit_keep_the_time_that_was_promised(fitted, monkeypatch):
    """Steps of 0.1 s, where the time is that of ten."""
    steps_made = []

    class SlowWindows:
        def __init__(self, model, device):
            pass

        def resident(self, batch, *, steps, round_, window="resident"):
            steps_made.append(steps)
            return a_sample(window, round=round_, step_ns=(10**8,) * max(1, steps - 2))

        def replay(self, batches, *, steps, round_):
            return self.resident(batches, steps=steps, round_=round_, window="replay")

    model, watch = fitted
    monkeypatch.setattr(ceilings, "Windows", SlowWindows)
    monkeypatch.setattr(ceilings, "READY_WINDOW_S", 0.0)
    monkeypatch.setattr(ceilings, "_LIMIT_S", 1.0)
    monkeypatch.setattr(ceilings.clock, "now_ns", lambda: sum(steps_made) * 10**8)
    found = measure_ceilings(model, watch, first_round=0)
    assert steps_made == [3, 1, 1, 1, 6, 6]
    assert found.reason == "4 steady steps were made in 1 s, too few to tell its rate"
