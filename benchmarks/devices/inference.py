"""Measures how fast a model predicts: its compiled predict function, on a batch that lies on the device."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from unstall.profiles import Device, clock
from unstall.profiles.measure import RAMP_STEPS, batch_images
from unstall.profiles.measure.backends import BACKENDS, check_backend, each

# The trial steps come after the first ones, which include tracing, and show how long a step takes.
_TRIAL_STEPS = 2
_LEAST_STEPS, _WINDOW_S = 3, 0.3


class Inference:
    """Predicts through the public `predict`, with a predict function that always takes the batch on the device.

    Args:
      model: a built model.
      device: the device that computes; an emulated device cannot predict.
      inputs: a batch of the model's inputs.
    """

    def __init__(self, model: Any, device: Device, inputs: Any) -> None:
        if device.kind == "emulated":
            raise ValueError(f"`device` must compute, so that it can predict. Received: device={device.name!r}.")
        self._model = model
        self._backend = BACKENDS[check_backend()](device)
        self._inputs = self._backend.on_device(inputs)
        self._one = each(lambda part: np.asarray(part)[:1], inputs)  # `predict` must get data, which are not used
        self._images = batch_images(inputs)
        model.make_predict_function()
        self._real = model.predict_function
        trial_s = self._run(RAMP_STEPS + _TRIAL_STEPS)
        self._steps = RAMP_STEPS + max(_LEAST_STEPS, math.ceil(_WINDOW_S / trial_s))

    def images_per_sec(self) -> float:
        """Predicts for some tenths of a second."""
        return self._images / self._run(self._steps)

    def _run(self, steps: int) -> float:
        """Returns the seconds of a steady step; the device is synchronised before the first and after the last."""
        calls = began_ns = ended_ns = 0

        def predict_function(*arguments: Any) -> Any:
            nonlocal calls, began_ns, ended_ns
            outputs = self._backend.predict(self._real, self._inputs, *arguments)
            calls += 1
            if calls == RAMP_STEPS:
                self._backend.synchronise(outputs)
                began_ns = clock.now_ns()
            elif calls == steps:
                self._backend.synchronise(outputs)
                ended_ns = clock.now_ns()
            return outputs

        self._model.predict_function = predict_function
        try:
            self._model.predict(((self._one,) for _ in itertools.count()), steps=steps, verbose=0)
        finally:
            self._model.predict_function = self._real
        return (ended_ns - began_ns) / (steps - RAMP_STEPS) / 1e9
