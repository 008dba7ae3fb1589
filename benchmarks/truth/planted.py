"""Loaders and models that take a known time, to hold the measurement against."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from profiles import clock

IMAGES = 10
_SIDE = 2


class Sleeper:
    """Sleeps for about a given time at each call, and keeps how long each sleep was."""

    def __init__(self, s: float) -> None:
        self._s = s
        self._took_ns: list[int] = []

    def __call__(self) -> None:
        before_ns = clock.now_ns()
        clock.sleep_until_ns(before_ns + int(self._s * 1e9))
        self._took_ns.append(clock.now_ns() - before_ns)

    @property
    def s(self) -> float:
        """The median sleep so far."""
        return float(np.median(self._took_ns)) / 1e9 if self._took_ns else 0.0


class Metronome:
    """Returns at fixed times after the first call, whatever its caller does between two calls."""

    def __init__(self, s: float) -> None:
        self._s = s
        self._next_ns: int | None = None

    def __call__(self) -> None:
        now_ns = clock.now_ns()
        self._next_ns = int((now_ns if self._next_ns is None else self._next_ns) + self._s * 1e9)
        clock.sleep_until_ns(self._next_ns)


def a_batch() -> tuple[np.ndarray, np.ndarray]:
    """Returns zeros: images (10, 2, 2, 3) float32, labels (10,) float32."""
    return np.zeros((IMAGES, _SIDE, _SIDE, 3), np.float32), np.zeros((IMAGES,), np.float32)


def a_loader(load: Callable[[], None], steps: int, *, ahead: int) -> tf.data.Dataset:
    """Returns a pipeline whose every batch calls `load`; tf.data changes nothing of it.

    Args:
      steps: batches.
      ahead: batches that a thread loads before they are asked for.
    """

    def loaded(index: np.ndarray) -> np.ndarray:
        load()
        return index

    images, labels = (tf.constant(part) for part in a_batch())

    def element(index: Any) -> tuple[Any, Any]:
        with tf.control_dependencies([tf.numpy_function(loaded, [index], tf.int64)]):
            return tf.identity(images), tf.identity(labels)

    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    dataset = tf.data.Dataset.range(steps).map(element).with_options(options)
    return dataset.prefetch(ahead) if ahead else dataset


class EdgyDataset(keras.utils.PyDataset):
    """Gives batches at once, and takes a planted time before the first and after the last batch of an epoch.

    It has two workers because Keras then switches off tf.data's autotune, which can add half a second to an epoch by
    chance.
    """

    def __init__(self, steps: int, first: Callable[[], None], end: Callable[[], None]) -> None:
        super().__init__(workers=2)
        self._steps, self._first, self._end = steps, first, end
        self._fresh = False

    @property
    def num_batches(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if self._fresh:
            self._fresh = False
            self._first()
        return a_batch()

    def on_epoch_begin(self) -> None:
        self._fresh = True

    def on_epoch_end(self) -> None:
        self._end()


class Planted(keras.Sequential):
    """Calls a function at the beginning of every training step."""

    step: Callable[[], None]

    def train_step(self, data: Any) -> Any:
        with tf.control_dependencies([tf.py_function(self.step, [], [])]):
            return super().train_step(data)


def a_model(step: Callable[[], None] | None = None) -> keras.Model:
    """Returns a tiny compiled model whose training step calls `step`."""
    layers = [keras.Input((_SIDE, _SIDE, 3)), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential(layers) if step is None else Planted(layers)
    if step is not None:
        model.step = step
    model.compile(optimizer="sgd", loss="mse", jit_compile=False)
    return model


class Burner:
    """Keeps one core busy without the interpreter's lock, until stopped."""

    _BLOCK = bytes(2**20)

    def __enter__(self) -> Burner:
        self._go_on = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._go_on = False
        self._thread.join()

    def _run(self) -> None:
        while self._go_on:
            hashlib.sha256(self._BLOCK)

    @classmethod
    def burn(cls, s: float, block_bytes: int = 2**20) -> None:
        """Keeps one core busy.

        Args:
          s: how long.
          block_bytes: hashed without the interpreter's lock, which is taken after each block; 1 MiB takes some 0.7 ms.
        """
        until_ns = clock.now_ns() + int(s * 1e9)
        block = cls._BLOCK[:block_bytes]
        while clock.now_ns() < until_ns:
            hashlib.sha256(block)
