"""Loaders and models of a known cost, and loaders that fail: tests check that the tools find these out."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.builders import MS
from tests.truth.planted import as_written
from unstall.profiles.devices import Device, parse_device
from unstall.profiles.measure.measure import measure_samples
from unstall.profiles.measure.schedule import ROUNDS
from unstall.profiles.results.result import Result, summarise
from unstall.profiles.statistics import median

# Marks tests that compare a measured figure with planted times. Beside others such a test may fail by accident, so that
# only one that also fails three times alone, with a pause before each, has failed. A figure that is not there is no
# AssertionError.
_MISSES = ["^AssertionError", "^IndexError", "^KeyError", "^StopIteration", "^ValueError"]
planted = pytest.mark.flaky(reruns=3, reruns_delay=2, only_rerun=_MISSES)
# Marks tests that compare no times, and may fail by an accident that comes once. They run beside others.
repeated = pytest.mark.flaky(reruns=2, only_rerun=["^AssertionError"])

# Seconds within which an error must be reported.
ERROR_S = 15


def sleep_for_ever() -> None:
    threading.Event().wait()


def crash(how: str) -> None:
    if how == "hang":
        sleep_for_ever()
    elif how == "exit":
        os._exit(3)
    else:
        faulthandler.disable()  # pytest's handler would print a traceback of this planted crash
        os.kill(os.getpid(), signal.Signals[how])
        sleep_for_ever()  # until the signal arrives


BACKEND = keras.backend.backend()
STEPS, IMAGES = 12, 10

tensorflow_only = pytest.mark.skipif(BACKEND != "tensorflow", reason="uses tf.py_function inside the model")


def a_batch(images: int = IMAGES) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((images, 2, 2, 3), np.float32), np.zeros((images,), np.float32)


def measure(data: Any, model: Any, *, device: str = "auto", rounds: int = ROUNDS, **settings: Any) -> Result:
    """Returns the result of training a model on data; further settings are those of `measure_samples`."""
    named = {"name": "data", **settings}
    subject, samples, _ = measure_samples(data, model, device=device, rounds=rounds, **named)
    return summarise(subject, samples, typical_canary_ns=median([sample.canary_ns for sample in samples]))


def emulated(step_ms: float) -> Device:
    """Returns an emulated device that takes `step_ms` for ten images."""
    return parse_device(f"emulated:{IMAGES / step_ms * 1e3}")


class Sleeper:
    """Sleeps, and records how long each sleep really took."""

    def __init__(self, ms: float) -> None:
        self._s = ms / 1e3
        self._took_ns: list[int] = []

    def __call__(self) -> None:
        self.time(lambda: time.sleep(self._s))

    def time(self, sleep: Callable[[], None]) -> None:
        before_ns = time.perf_counter_ns()
        sleep()
        self._took_ns.append(time.perf_counter_ns() - before_ns)

    def take_ms(self) -> float:
        """Returns the mean of the sleeps since the last call."""
        took_ns, self._took_ns = self._took_ns, []
        return float(np.mean(took_ns)) / MS


class SleepyDataset(keras.utils.PyDataset):
    """Takes `ms` for each batch, and also `first_ms` at the beginning and `end_ms` at the end of an epoch."""

    def __init__(
        self,
        ms: float,
        *,
        steps: int = STEPS,
        workers: int = 1,
        last_images: int = IMAGES,
        first_ms: float = 0,
        end_ms: float = 0,
        fail_at: int | None = None,
    ) -> None:
        super().__init__(workers=workers, max_queue_size=10)
        self.load = Sleeper(ms)
        self._steps, self._last_images = steps, last_images
        self._first_s, self._end_s, self._fail_at = first_ms / 1e3, end_ms / 1e3, fail_at
        self._fresh = False

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if index == self._fail_at:
            raise RuntimeError("the disk is gone")
        if self._fresh:
            self._fresh = False
            time.sleep(self._first_s)
        self.load()
        return a_batch(self._last_images if index == self._steps - 1 else IMAGES)

    def on_epoch_begin(self) -> None:
        self._fresh = True

    def on_epoch_end(self) -> None:
        time.sleep(self._end_s)


def sequential(load: Callable[[], None], steps: int = STEPS) -> tf.data.Dataset:
    """Returns a dataset that loads each batch only when it is asked for."""

    def sleep(index: np.ndarray) -> np.ndarray:
        load()
        return index

    images, labels = (tf.constant(part) for part in a_batch())

    def element(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.control_dependencies([tf.numpy_function(sleep, [index], tf.int64)]):
            return tf.identity(images), tf.identity(labels)

    return as_written(tf.data.Dataset.range(steps).map(element))


def a_model() -> keras.Model:
    model = keras.Sequential([keras.Input((2, 2, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", jit_compile=BACKEND == "jax")
    return model


def sleepy_model(step: Callable[[], None], image_shape: tuple[int, int, int] = (2, 2, 3)) -> keras.Model:
    """Returns a model whose compiled step sleeps."""

    class Sleepy(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            with tf.control_dependencies([tf.py_function(step, [], [])]):
                return super().train_step(data)

    model = Sleepy([keras.Input(image_shape), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", jit_compile=False)
    return model
