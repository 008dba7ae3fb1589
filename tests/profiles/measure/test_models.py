"""Every kind of model and of batch that `fit` takes is measured: nothing is refused that Keras would train."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import PROJECT_ROOT
from tests.fakes import FakeClock
from tests.planted import IMAGES, SleepyDataset, a_batch, a_model, measure, sequential, tensorflow_only
from unstall.profiles.devices import parse_device
from unstall.profiles.measure import measure as measuring
from unstall.profiles.measure import schedule
from unstall.profiles.measure.windows import Windows
from unstall.profiles.results.result import Result

STEPS, LAST = 12, 4
Case = Callable[[], tuple[Any, keras.Model]]
CASES: dict[str, Case] = {}


def case(make: Case) -> Case:
    CASES[make.__name__.replace("_", " ")] = make
    return make


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "epochs_for", functools.partial(schedule.epochs_for, window_s=0.05))
    monkeypatch.setattr(schedule, "READY_WINDOW_S", 0.02)


def batched(element: Any) -> tf.data.Dataset:
    """Returns twelve batches of such elements, given with all images of an epoch; the last batch is short."""
    return tf.data.Dataset.from_tensor_slices(element).batch(IMAGES)


def floats(*shape: int) -> np.ndarray:
    return np.ones(((STEPS - 1) * IMAGES + LAST, *shape), np.float32)


def images() -> np.ndarray:
    return floats(2, 2, 3)


def compiled(model: keras.Model, **options: Any) -> keras.Model:
    model.compile(**({"optimizer": "sgd", "loss": "mse", "jit_compile": False} | options))
    return model


def layers() -> list[Any]:
    return [keras.Input((2, 2, 3)), keras.layers.Flatten(), keras.layers.Dense(1)]


# What batches hold


@case
def sample_weights() -> tuple[Any, keras.Model]:
    return batched((images(), floats(), floats())), a_model()


@case
def sample_weights_in_a_list() -> tuple[Any, keras.Model]:
    return [(*a_batch(), np.ones(IMAGES, np.float32))] * (STEPS - 1) + [(*a_batch(LAST), np.ones(LAST))], a_model()


@case
def sample_weights_in_a_py_dataset() -> tuple[Any, keras.Model]:
    class Weighted(SleepyDataset):
        def __getitem__(self, index: int) -> Any:
            batch = super().__getitem__(index)
            return *batch, np.ones(len(batch[1]), np.float32)

    return Weighted(0, last_images=LAST), a_model()


@case
def a_dictionary_of_inputs_and_one_of_labels() -> tuple[Any, keras.Model]:
    inputs = {name: keras.Input((2,), name=name) for name in ("left", "right")}
    joined = keras.layers.Concatenate()(list(inputs.values()))
    model = keras.Model(inputs, {name: keras.layers.Dense(1, name=name)(joined) for name in ("cat", "dog")})
    element = ({name: floats(2) for name in inputs}, {name: floats() for name in ("cat", "dog")})
    return batched(element), compiled(model, loss={"cat": "mse", "dog": "mse"})


@case
def lists_of_inputs_and_of_labels() -> tuple[Any, keras.Model]:
    inputs = [keras.Input((2,)), keras.Input((3,))]
    joined = keras.layers.Concatenate()(inputs)
    model = keras.Model(inputs, [keras.layers.Dense(1)(joined), keras.layers.Dense(1)(joined)])
    batch = ((np.ones((IMAGES, 2)), np.ones((IMAGES, 3))), (np.ones(IMAGES), np.ones(IMAGES)))
    short = keras.tree.map_structure(lambda part: part[:LAST], batch)
    return [batch] * (STEPS - 1) + [short], compiled(model, loss=["mse", "mse"])


class Unlabelled(keras.layers.Layer):
    """Adds a loss that needs no labels."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(keras.ops.mean(keras.ops.square(inputs)))
        return inputs


def without_labels() -> keras.Model:
    return compiled(keras.Sequential([*layers(), Unlabelled()]), loss=None)


@case
def no_labels() -> tuple[Any, keras.Model]:
    return batched(images()), without_labels()


@case
def no_labels_in_a_tuple_of_one() -> tuple[Any, keras.Model]:
    return batched((images(),)), without_labels()


@case
def no_labels_in_a_list_of_arrays() -> tuple[Any, keras.Model]:
    return [a_batch()[0]] * (STEPS - 1) + [a_batch(LAST)[0]], without_labels()


@case
def a_dictionary_and_no_labels() -> tuple[Any, keras.Model]:
    class Reads(keras.Sequential):
        def train_step(self, batch: Any) -> Any:
            return super().train_step((batch["photo"], batch["label"]))

        def call(self, inputs: Any, **options: Any) -> Any:
            return super().call(inputs["photo"] if isinstance(inputs, dict) else inputs, **options)

    model = Reads(layers()[1:])
    model(images()[:1])
    return batched({"photo": images(), "label": floats()}), compiled(model)


# Train steps and train functions of the user's own


class OwnStep(keras.Sequential):
    """As in Keras' guide to a `train_step` from scratch; batches hold no labels."""

    def train_step(self, batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(self(batch, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


@case
def a_train_step_of_its_own() -> tuple[Any, keras.Model]:
    model = OwnStep(layers())
    model.compile(optimizer="sgd")
    return batched(images()), model


class OwnFunction(keras.Sequential):
    """Makes its train function anew in each `fit`, as models written for Keras 2 do."""

    def make_train_function(self, force: bool = False) -> None:
        @tf.function
        def train_function(iterator: Any) -> Any:
            return self.train_step(next(iterator))

        self.train_function = train_function


class DrawsInTensorFlow(keras.Sequential):
    """Draws by a method that only tf.data's iterators have."""

    def make_train_function(self, force: bool = False) -> None:
        step = tf.function(self.train_step, reduce_retracing=True)
        self.train_function = lambda iterator: step(iterator.get_next())


class Wraps(keras.Sequential):
    """Calls Keras' own train function."""

    def make_train_function(self, force: bool = False) -> Any:
        function = super().make_train_function(force) or self.train_function
        if not hasattr(function, "wraps"):
            self.train_function = functools.partial(function)
            self.train_function.wraps = True


class DrawsTwo(keras.Sequential):
    """Trains on two batches a step."""

    def make_train_function(self, force: bool = False) -> None:
        @tf.function
        def train_function(iterator: Any) -> Any:
            self.train_step(next(iterator))
            return self.train_step(next(iterator))

        self.train_function = train_function


def checked(result: Result, images: int = (STEPS - 1) * IMAGES + LAST) -> None:
    """Checks what is true of every result, and that all images of each epoch are counted."""
    assert sum(share for share in result.attribution.shares.values() if share is not None) == pytest.approx(1)
    assert result.subject.batch_size == IMAGES
    for sample in result.of("train"):
        assert sample.epoch_images == sample.epochs * images


@tensorflow_only
@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_what_fit_trains_on_is_measured(make: Case) -> None:
    checked(measure(*make(), device="cpu", rounds=1))


@tensorflow_only
@pytest.mark.parametrize("make", [sample_weights, no_labels, a_dictionary_and_no_labels])
def test_an_accelerator_is_emulated_for_any_batch(make: Case) -> None:
    checked(measure(*make(), device="emulated:20000", rounds=1))


@tensorflow_only
@pytest.mark.parametrize("own", [OwnFunction, DrawsInTensorFlow, Wraps, DrawsTwo])
def test_a_train_function_of_its_own_is_measured(own: type[keras.Model]) -> None:
    checked(measure(batched((images(), floats())), compiled(own(layers())), device="cpu", rounds=1))


@tensorflow_only
def test_a_train_function_may_ask_for_more_batches_than_there_are() -> None:
    """Of 13 batches an epoch, a step on two of them trains on 12."""
    data = batched((np.ones((13 * IMAGES, 2, 2, 3), np.float32), np.ones(13 * IMAGES, np.float32)))
    windows = Windows(compiled(DrawsTwo(layers())), parse_device("cpu"))
    windows.prepare([a_batch()])
    sample = windows.train(data, epochs=3, ramp_steps=1, round_=0)
    assert (sample.epoch_images, len(sample.step_ns)) == (3 * 12 * IMAGES, 3 * 5)


@tensorflow_only
@pytest.mark.parametrize("draws", [1, 2])
def test_every_batch_that_a_train_function_draws_is_waited_for(draws: int, fake_clock: FakeClock) -> None:
    """Drawing a batch takes 20 ms, and a step 10 ms."""

    class Draws(keras.Sequential):
        def make_train_function(self, force: bool = False) -> None:
            def train_function(iterator: Any) -> Any:
                for _ in range(draws):
                    next(iterator)
                fake_clock.sleep(0.01)
                return {}

            self.train_function = train_function

    model = compiled(Draws(layers()))
    result = measure(sequential(lambda: fake_clock.sleep(0.02)), model, device="cpu", rounds=1)
    for sample in result.of("train"):
        assert sample.s_per_image * draws * IMAGES == pytest.approx(0.01 + draws * 0.02)
        assert sample.wait_s_per_image * IMAGES == pytest.approx(0.02)
    assert result.attribution.loading_ratio == pytest.approx(draws * 0.02 / (0.01 + draws * 0.02))


# Class weights


@tensorflow_only
@pytest.mark.parametrize("kind", ["tf.data", "PyDataset"])
def test_class_weights_are_those_of_fit(kind: str) -> None:
    seen: list[float] = []

    class Sees(keras.Sequential):
        def train_step(self, batch: Any) -> Any:
            with tf.control_dependencies(
                [tf.py_function(lambda weight: seen.append(float(weight)), [batch[2][0]], [])]
            ):
                return super().train_step(batch)

    class Labelled(SleepyDataset):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)[0], np.ones(IMAGES, np.float32)

    data = batched((images(), floats())).take(STEPS - 1) if kind == "tf.data" else Labelled(0, steps=STEPS - 1)
    result = measure(data, compiled(Sees(layers())), device="cpu", rounds=1, class_weight={0: 1.0, 1: 3.0})
    checked(result, images=(STEPS - 1) * IMAGES)
    assert set(seen) == {3.0}


# Several replicas

_TWO_REPLICAS = """
import functools, gc, sys
import keras, numpy as np, tensorflow as tf
from unstall.profiles.measure import measure as measuring
from unstall.profiles.measure import schedule

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
schedule.READY_WINDOW_S = 0.02
measuring.epochs_for = functools.partial(schedule.epochs_for, window_s=0.05)
gc.freeze()
sizes = set()

class Sees(keras.Sequential):
    def train_step(self, batch):
        size = tf.shape(batch[0])[0]
        with tf.control_dependencies([tf.py_function(lambda size: sizes.add(int(size)), [size], [])]):
            return super().train_step(batch)

class OwnFunction(Sees):
    def make_train_function(self, force=False):
        @tf.function
        def train_function(iterator):
            return self.distribute_strategy.run(self.train_step, args=(next(iterator),))
        self.train_function = train_function

own, kind, device, count = sys.argv[1:]
images, labels = np.ones((int(count), 2, 2, 3), np.float32), np.ones(int(count), np.float32)
data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(10)
if kind == "list":
    data = [(images[at : at + 10], labels[at : at + 10]) for at in range(0, int(count), 10)]
with strategy.scope():
    model = globals()[own]([keras.Input((2, 2, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", jit_compile=False)
subject, samples, _ = measuring.measure_samples(data, model, device=device, rounds=1, name="data")
images_of_epochs = {sample.epoch_images / sample.epochs for sample in samples if sample.window == "train"}
print(subject.batch_size, images_of_epochs, sorted(sizes), np.isfinite(model.get_weights()[0]).all())
"""


@pytest.mark.long
@tensorflow_only
@pytest.mark.parametrize(
    ("own", "kind", "device", "images", "sizes"),
    [
        ("Sees", "dataset", "cpu", 60, [5]),
        pytest.param("Sees", "dataset", "cpu", 114, [2, 5], marks=pytest.mark.slow),
        pytest.param("Sees", "list", "cpu", 60, [5], marks=pytest.mark.slow),
        pytest.param("OwnFunction", "list", "cpu", 114, [2, 5], marks=pytest.mark.slow),
        pytest.param("Sees", "dataset", "emulated:20000", 114, [1], marks=pytest.mark.slow),
    ],
)
def test_each_of_two_replicas_trains_on_its_part_of_a_batch(
    own: str, kind: str, device: str, images: int, sizes: list[int]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TWO_REPLICAS, own, kind, device, str(images)],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.strip() == f"10 {{{float(images)}}} {sizes} True"
