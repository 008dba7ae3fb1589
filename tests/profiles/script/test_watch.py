"""Watching a running `fit`: the same results, and what was planted is found."""

from __future__ import annotations

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.builders import MS
from tests.planted import sleepy_model
from unstall.profiles.measure.completion import Completion
from unstall.profiles.script.callback import WatchCallback
from unstall.profiles.script.stepper import Stepper
from unstall.profiles.script.watch import Watch

RNG = np.random.default_rng(0)
IMAGES = RNG.random((70, 8, 8, 3)).astype(np.float32)
LABELS = IMAGES.mean((1, 2, 3))


def network(steps_per_execution=1):
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Flatten(),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(momentum=0.9), "mse", metrics=["mae"], steps_per_execution=steps_per_execution)
    return model


def small_network(steps_per_execution=1):
    """For what is counted and timed: quickly traced."""
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    return model


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.drop = keras.layers.Dropout(0.5)

    def call(self, inputs, training=False):
        return self.dense(self.drop(keras.ops.mean(inputs, axis=(1, 2)), training=training))


class ByIndex(keras.utils.PyDataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return IMAGES[index * 14 : index * 14 + 14], LABELS[index * 14 : index * 14 + 14]


def dataset(images=70, batch=16, **options):
    return tf.data.Dataset.from_tensor_slices((IMAGES[:images], LABELS[:images])).batch(batch, **options)


FED = {
    "a tf.data pipeline with a short last batch": lambda: {"x": dataset()},
    "batches of a fixed size": lambda: {"x": dataset(64, drop_remainder=True)},
    "NumPy arrays, shuffled": lambda: {"x": IMAGES, "y": LABELS, "batch_size": 16},
    "NumPy arrays with weights": lambda: {"x": IMAGES, "y": LABELS, "sample_weight": LABELS, "batch_size": 16},
    "a PyDataset": lambda: {"x": ByIndex()},
    "validation data": lambda: {"x": dataset(), "validation_data": dataset(20)},
    "fewer steps than there are": lambda: {"x": dataset().repeat(), "steps_per_epoch": 3},
    # Keras finds the end by a step without a batch, of which TensorFlow runs a part.
    "batches of a fixed size, and an unknown number of them": lambda: {
        "x": dataset(64, drop_remainder=True).filter(lambda *_: True),
        "validation_data": dataset(48, drop_remainder=True).filter(lambda *_: True),
    },
    "too few batches": lambda: {"x": dataset(32), "steps_per_epoch": 3},
}


def trained(model, fed, watched, epochs=3):
    callback = WatchCallback(keep_batches=4)
    history = model.fit(**fed, epochs=epochs, verbose=0, callbacks=[callback] if watched else [])
    return [np.asarray(weight) for weight in model.get_weights()], history.history, callback.watch


def assert_same(ours, theirs):
    assert all(np.array_equal(one, other) for one, other in zip(ours[0], theirs[0], strict=True))
    assert ours[1] == theirs[1]


# Those that differ in what draws the batches; the others run with `-m claims`.
QUICK = {
    "a tf.data pipeline with a short last batch",
    "batches of a fixed size, and an unknown number of them",
    "NumPy arrays with weights",
    "a PyDataset",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.claims) for name in FED]
)
def test_training_comes_to_the_same_bit_for_bit(name):
    plain = trained(network(), FED[name](), watched=False)
    watched = trained(network(), FED[name](), watched=True)
    assert_same(watched, plain)
    assert watched[2].records and all(record.steps <= 5 for record in watched[2].records)


def test_several_steps_a_call_come_to_the_same_and_are_counted():
    fed = {"x": dataset()}
    plain = trained(network(2), fed, watched=False)
    watched = trained(network(2), fed, watched=True)
    assert_same(watched, plain)
    assert [(record.steps, record.images) for record in watched[2].records] == [(5, 70)] * 3


def test_an_iterator_that_serves_several_epochs_is_counted_for_each():
    fed = {"x": dataset(64).repeat(), "steps_per_epoch": 5}
    _, _, watch = trained(small_network(5), fed, watched=True)
    assert [(record.steps, record.images) for record in watch.records] == [(5, 80)] * 3


@pytest.mark.parametrize("eager", [False, True])
def test_a_subclassed_model_comes_to_the_same(eager):
    came_to = []
    for watched in (False, True):
        keras.utils.set_random_seed(1)
        model = Subclassed()
        model.compile("adam", "mse", run_eagerly=eager)
        came_to.append(trained(model, {"x": dataset()}, watched=watched, epochs=1))
    assert_same(*came_to)


def test_images_and_steps_are_counted():
    _, _, watch = trained(small_network(), {"x": dataset()}, watched=True)
    assert [(one.epoch, one.steps, one.images) for one in watch.records] == [(0, 5, 70), (1, 5, 70), (2, 5, 70)]
    # The first two steps of an epoch are its ramp; the last, of a smaller batch, is traced for no size of its own.
    assert [one.steady_images for one in watch.records] == [38, 38, 38]
    assert [one.steady_steps for one in watch.records] == [3, 3, 3]
    assert [len(one.step_ns) for one in watch.records] == [3, 3, 3]


def test_one_batch_of_each_size_is_kept_and_four_at_most():
    _, _, watch = trained(small_network(), {"x": dataset()}, watched=True)
    assert [len(batch[0]) for batch in watch.kept] == [16, 16, 16, 6]


def paused(fake_clock):
    """20 batches of 16 images that take 20 ms each, as written: without tf.data's own prefetching."""

    def wait(images, labels):
        fake_clock.sleep(0.02)
        return images, labels

    def shaped(images, labels):
        return tf.ensure_shape(images, (None, 8, 8, 3)), tf.ensure_shape(labels, (None,))

    def in_python(images, labels):
        return tf.numpy_function(wait, [images, labels], [tf.float32, tf.float32])

    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return dataset(64).map(in_python).map(shaped).repeat(5).with_options(options)


def test_a_planted_wait_is_found(fake_clock):
    model = sleepy_model(lambda: fake_clock.sleep(0.005), IMAGES.shape[1:])
    _, _, watch = trained(model, {"x": paused(fake_clock)}, watched=True, epochs=2)
    record = watch.records[-1]
    assert (record.steps, record.images, record.wait_ms_per_step) == (20, 320, 20)
    assert record.loading_ratio == pytest.approx(20 / 25)
    assert record.images_per_sec == pytest.approx(16 / 0.025)


def test_with_several_steps_a_call_the_rate_is_known_and_the_wait_is_not(fake_clock):
    _, _, watch = trained(small_network(4), {"x": paused(fake_clock)}, watched=True, epochs=2)
    record = watch.records[-1]
    assert (record.steps, record.images, record.wait_ms_per_step) == (20, 320, None)
    assert record.images_per_sec == pytest.approx(16 / 0.020)
    assert "several in a call" in watch.why_unknown


def test_what_callbacks_do_is_between_the_steps_and_no_wait(fake_clock):
    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            fake_clock.sleep(0.05)

    callback = WatchCallback()
    small_network().fit(dataset(), epochs=2, verbose=0, callbacks=[callback, Slow()])
    record = callback.watch.records[-1]
    assert (record.between_ns, record.steady_ns, record.steady_wait_ns) == (150 * MS, 150 * MS, 0)


def test_validation_is_no_part_of_an_epoch(fake_clock):
    class Slow(keras.callbacks.Callback):
        def on_test_end(self, logs=None):
            fake_clock.sleep(0.4)

    callback = WatchCallback()
    small_network().fit(dataset(), validation_data=dataset(20), epochs=2, verbose=0, callbacks=[callback, Slow()])
    record = callback.watch.records[-1]
    assert (record.other_ns, record.epoch_ns) == (400 * MS, 0)


class Failure(Exception):
    pass


class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            raise Failure


def is_own(function):
    return function.__module__.startswith("keras.")


def test_the_model_has_its_own_train_function_back():
    model = small_network()
    trained(model, {"x": dataset()}, watched=True)
    assert is_own(model.train_function)

    def broken():
        yield IMAGES[:16], LABELS[:16]
        yield IMAGES[:16], LABELS[:16]
        yield IMAGES[:16], LABELS[:16]
        raise Failure("the loader broke")

    with pytest.raises(tf.errors.OpError, match="the loader broke"):
        trained(model, {"x": broken()}, watched=True)
    assert is_own(model.train_function)


def test_a_fit_that_died_between_steps_is_forgotten_by_the_next():
    model, plain = network(), network()
    for one, callbacks in ((model, [WatchCallback(), Fails()]), (plain, [Fails()])):
        keras.utils.set_random_seed(1)
        with pytest.raises(Failure):
            one.fit(dataset(), verbose=0, callbacks=callbacks)
    assert_same(trained(model, {"x": dataset()}, watched=False), trained(plain, {"x": dataset()}, watched=False))
    assert is_own(model.train_function)


def test_two_watches_see_the_same_wait(fake_clock):
    model, outer, inner = small_network(), WatchCallback(), WatchCallback()
    model.fit(paused(fake_clock), epochs=2, verbose=0, callbacks=[inner, outer])
    assert is_own(model.train_function)
    records = [callback.watch.records[-1] for callback in (outer, inner)]
    assert [(record.steps, record.images, record.wait_ms_per_step) for record in records] == [(20, 320, 20)] * 2


def test_what_is_told_of_steps_can_leave_fit():
    model, seen = small_network(), []

    def enough(steps):
        seen.append(steps)
        if sum(seen) == 7:
            raise SystemExit(0)

    callback = WatchCallback(on_steps=enough)
    with pytest.raises(SystemExit):
        model.fit(dataset(), epochs=3, verbose=0, callbacks=[callback])
    callback.watch.close()
    assert [record.steps for record in callback.watch.records] == [5, 2]
    assert is_own(model.train_function)


def test_a_train_function_of_the_users_own_gets_the_iterator():
    class Own(Subclassed):
        def make_train_function(self, force=False):
            def function(iterator):
                assert isinstance(iterator, tf.data.Iterator)
                return self.train_step(iterator.get_next())

            self.train_function = function

    model = Own()
    model.compile("sgd", "mse")
    _, _, watch = trained(model, {"x": dataset(64)}, watched=True, epochs=2)
    assert [(record.steps, record.images) for record in watch.records] == [(4, 64), (4, 64)]


def test_a_backend_that_is_not_known_is_left_alone(monkeypatch):
    model = small_network()
    model.make_train_function()
    before = model.train_function
    monkeypatch.setattr(keras.backend, "backend", lambda: "openvino")
    watch = Watch(model)
    watch.begin_epoch(0, None)
    assert model.train_function is before
    watch.close()
    assert "openvino" in watch.why_unknown
    assert not watch.records


TWO_DEVICES = """
import numpy as np, tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
import keras
from unstall.profiles.script.callback import WatchCallback

images = np.random.default_rng(0).random((70, 8, 8, 3)).astype(np.float32)
came_to = []
for watched in (False, True):
    keras.utils.set_random_seed(1)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    callback = WatchCallback()
    data = tf.data.Dataset.from_tensor_slices((images, images.mean((1, 2, 3)))).batch(16)
    history = model.fit(data, epochs=2, verbose=0, callbacks=[callback] if watched else [])
    came_to.append((model.get_weights(), history.history))
same = all((one == other).all() for one, other in zip(came_to[0][0], came_to[1][0]))
one = callback.watch.records[-1]
print(same, came_to[0][1] == came_to[1][1], one.steps, one.images, one.loading_ratio is not None)
"""


@pytest.mark.slow
def test_a_model_on_two_devices_is_unharmed():
    done = subprocess.run([sys.executable, "-c", TWO_DEVICES], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["True True 5 70 True"], done.stderr[-2000:]


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_on_jax_fit_ends_behind_the_step_whose_result_keras_must_get(end):
    """There a step deletes the arrays of the model's variables: without its result the model has none."""
    calls = []

    def on_steps(steps):
        if not calls:
            calls.append(steps)
            raise end

    model = small_network()
    model.make_train_function()
    stepper = Stepper(model, "train_function", on_steps=on_steps)
    stepper._jax, stepper._completion = True, Completion(lambda result: None, lambda result: True)
    model.train_function = lambda state, iterator: ("logs", (state, *next(iterator)))
    stepper.begin(0, 2)
    stepper.replace_function()
    batch = IMAGES[:4], LABELS[:4]
    logs, result = model.train_function("state", iter([batch]))
    assert (logs, result[0]) == ("logs", "state") and result[1] is batch[0] and calls == [1]
    with pytest.raises(end):
        model.train_function("state", iter([batch]))
    assert stepper.close(whole=False).steps == 1


def test_on_jax_fit_ends_with_the_epoch_where_no_step_follows():
    callback = WatchCallback()
    callback.set_model(small_network())
    callback.on_train_begin()
    callback.watch._training._end = SystemExit(0)
    with pytest.raises(SystemExit):
        callback.on_epoch_end(0)
    callback.on_epoch_end(1)  # once
