"""Times of training by hand: one clock around Keras' own `fit`, or around plain steps, and none of what is tested."""

from __future__ import annotations

import gc
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np

from unstall.profiles import clock

# Steps before the clock starts: they trace the model's step.
_WARM_UP_STEPS = 3
# Epochs, and stretches of plain steps, of which the median is taken.
_EPOCHS = _STRETCHES = 3


def warmed(model: Any, data: Any) -> Any:
    """Returns the model after an epoch of one batch, in which its step was traced for this loader."""
    epoch_s(model, data.take(1))
    return model


def step_s(model: Any, batches: Iterator[Any], steps: int) -> float:
    """Returns the seconds of a training step: one clock around plain calls of the model's train function.

    Args:
      batches: gives the batch of each step.
      steps: that are timed, in stretches of equal length; the median stretch counts.
    """
    model.make_train_function()
    if keras.backend.backend() == "jax":
        return _jax_step_s(model, batches, steps)
    return _timed_s(lambda: model.train_function(batches), steps)


def _jax_step_s(model: Any, batches: Iterator[Any], steps: int) -> float:
    """Times steps as `step_s` does, on JAX: there a train function takes the state of a training, which `fit` makes."""
    train, timed_s = model.train_function, []

    def all_steps(state: Any, iterator: Any) -> tuple[Any, Any]:
        logs, state = train(state, iterator)

        def step() -> Any:
            nonlocal state
            logs, state = train(state, batches)
            return logs

        timed_s.append(_timed_s(step, steps))
        return logs, state

    model.train_function = all_steps
    try:
        images, labels = map(np.asarray, next(batches))
        model.fit(images, labels, batch_size=len(images), verbose=0)
    finally:
        model.train_function = train
    return timed_s[0]


def _timed_s(step: Callable[[], Any], steps: int) -> float:
    for _ in range(_WARM_UP_STEPS):
        _wait_for(step())
    gc.collect()
    moments_ns = [clock.now_ns()]
    stretch = math.ceil(steps / _STRETCHES)
    for _ in range(_STRETCHES):
        for _ in range(stretch):
            logs = step()
        _wait_for(logs)
        moments_ns.append(clock.now_ns())
    return float(np.median(np.diff(moments_ns))) / stretch / 1e9


def _wait_for(logs: Any) -> None:
    """Waits until the device has computed what a step returned."""
    keras.tree.map_structure(np.asarray, logs)


def epoch_s(model: Any, data: Any) -> float:
    """Returns the median of the seconds of epochs of one `fit`, their edges included.

    An epoch lasts from its beginning until the next one begins, or until `fit` returns.
    """
    moments_ns = []

    def begin(epoch: int, logs: Any = None) -> None:
        moments_ns.append(clock.now_ns())

    gc.collect()
    model.fit(data, epochs=_EPOCHS, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_epoch_begin=begin)])
    moments_ns.append(clock.now_ns())
    return float(np.median(np.diff(moments_ns))) / 1e9


def cpu_s(data: Iterable[Any]) -> float:
    """Returns the CPU seconds of this process while it reads the data once and drops the batches."""
    gc.collect()
    began_ns = clock.own_cpu_ns()
    for _ in data:
        pass
    return (clock.own_cpu_ns() - began_ns) / 1e9


class Reading:
    """Reads a loader again and again in a thread, and drops its batches, until stopped."""

    def __init__(self, data: Iterable[Any]) -> None:
        self._data = data
        self._go_on = True
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Reading:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._go_on = False
        self._thread.join()

    def _read(self) -> None:
        while self._go_on:
            for _ in itertools.takewhile(lambda _: self._go_on, self._data):
                pass
