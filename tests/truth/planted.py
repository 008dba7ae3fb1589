"""Loaders and models that take a known time, to hold the measurement against."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from unstall.profiles import clock

IMAGES = 10
SIDE = 2
# Hashed without the interpreter's lock, in some 0.7 ms.
_BLOCK = bytes(2**20)


class Sleeper:
    """Sleeps for a given time at each call, and records how long each sleep really took."""

    def __init__(self, s: float) -> None:
        self._s = s
        self._slept_ns: list[int] = []

    def __call__(self) -> None:
        began_ns = clock.now_ns()
        clock.sleep_until_ns(began_ns + int(self._s * 1e9))
        self._slept_ns.append(clock.now_ns() - began_ns)

    @property
    def mean_s(self) -> float:
        return sum(self._slept_ns) / len(self._slept_ns) / 1e9


class Metronome:
    """Returns at fixed times after the first call, whatever its caller does between two calls."""

    def __init__(self, s: float) -> None:
        self._s = s
        self._next_ns: int | None = None

    def __call__(self) -> None:
        now_ns = clock.now_ns()
        self._next_ns = int((now_ns if self._next_ns is None else self._next_ns) + self._s * 1e9)
        clock.sleep_until_ns(self._next_ns)


class Burner:
    """Keeps a core busy for a given CPU time at each call, without the interpreter's lock."""

    def __init__(self, s: float) -> None:
        self._s = s

    def __call__(self) -> None:
        until_ns = clock.thread_cpu_ns() + self._s * 1e9
        while clock.thread_cpu_ns() < until_ns:
            hashlib.sha256(_BLOCK)


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keeps all threads of this process on one core until the block ends, where the system can: on Linux.

    Threads that start meanwhile stay on the core of the thread that starts them.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    _bind_threads({max(cores)})
    try:
        yield
    finally:
        _bind_threads(cores)


def _bind_threads(cores: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), cores)


def a_batch(images: int = IMAGES, side: int = SIDE) -> tuple[tf.Tensor, ...]:
    """Returns zeros: images (images, side, side, 3) float32, labels (images,) float32."""
    return tf.zeros((images, side, side, 3)), tf.zeros((images,))


def a_loader(
    load: Callable[[], None],
    steps: int,
    *,
    ahead: int = 0,
    first: Callable[[], None] | None = None,
    end: Callable[[], None] | None = None,
    batch: tuple[tf.Tensor, ...] | None = None,
) -> tf.data.Dataset:
    """Returns a pipeline whose every batch calls `load`; tf.data changes nothing of it.

    Args:
      steps: batches.
      ahead: batches that a thread loads before they are asked for.
      first: called before the first batch is loaded.
      end: called after the last batch, before the epoch ends.
      batch: what the pipeline yields; `a_batch()` unless given.
    """

    def loaded(index: np.ndarray) -> np.ndarray:
        if index == 0 and first is not None:
            first()
        if index < steps:
            load()
        elif end is not None:
            end()
        return index

    def call(index: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(loaded, [index], tf.int64), ())

    images, labels = batch or a_batch()

    def element(index: Any) -> tuple[Any, Any]:
        with tf.control_dependencies([index]):
            return tf.identity(images), tf.identity(labels)

    numbers = tf.data.Dataset.range(steps if end is None else steps + 1).map(call)
    if end is not None:
        numbers = numbers.filter(lambda index: index < steps)
    dataset = as_written(numbers.map(element))
    return dataset.prefetch(ahead) if ahead else dataset


def as_written(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keeps tf.data from rewriting a pipeline, and from tuning it."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    return dataset.with_options(options)


class Pause(keras.layers.Layer):
    """Calls a function whenever a batch passes, and changes nothing of the batch.

    The call waits for the batch: in a compiled step it would otherwise run while the batch is still being loaded.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._call = call

    def call(self, images: Any) -> Any:
        with tf.control_dependencies([images]):
            called = tf.py_function(self._call, [], [])
        with tf.control_dependencies([called]):
            return tf.identity(images)


def a_model(*calls: Callable[[], None], side: int = SIDE) -> keras.Model:
    """Returns a tiny compiled model whose training step makes these calls."""
    layers = [keras.Input((side, side, 3)), *map(Pause, calls), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(optimizer="sgd", loss="mse", jit_compile=False)
    return model


def a_device(step: Callable[[], None]) -> keras.Model:
    """Returns a model whose step computes nothing and calls `step`, as an emulated device does."""
    model = a_model()
    model.make_train_function()

    def train_function(iterator: Any) -> dict[str, Any]:
        next(iterator)
        step()
        return {}

    model.train_function = train_function
    return model
