"""Measures data that `fit` reads, tf.data's and Keras', by Keras' own `fit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unstall.profiles.data import adapter
from unstall.profiles.devices import CPU, Device
from unstall.profiles.gate.verdicts import EPOCH, STEADY
from unstall.profiles.measure.ahead import Ahead
from unstall.profiles.measure.batches import first_batches, is_fit_data
from unstall.profiles.measure.measure import shapes
from unstall.profiles.measure.schedule import epochs_for
from unstall.profiles.measure.steps import steady_part
from unstall.profiles.measure.windows import Windows, idle_windows
from unstall.profiles.samples import Sample
from unstall.profiles.stages.tf_graph import CutError


class FitWindows:
    """Windows of whole epochs, read by `fit`.

    Args:
      data: batches that can be read again.
      model: a compiled model, which is trained in each window. Without a model the data alone are measured.
      device: the device that trains.
      parallel_batches: how many batches may be prepared at once; None to find out.
      repeated: what `fit` gets of the data, where one iterator serves all epochs.
      limit_s: how long an epoch may take.
    Raises:
      ValueError: if the data give no batch, or an epoch does not end in time.
    """

    def __init__(
        self,
        data: Any,
        *,
        model: Any,
        device: Device | None,
        parallel_batches: int | None,
        repeated: Any,
        limit_s: float,
    ) -> None:
        self._fed = data if repeated is None else repeated
        self._limit_s = limit_s
        self._train = model is not None
        self._ramp_steps = 1
        if model is None:
            self.windows = idle_windows(device or CPU)
        else:
            self.windows = Windows(model, device or CPU)
            self.windows.prepare(shapes(first_batches(data)))
        # The first epoch may be slower, because it fills caches; the second tells how long an epoch takes from then on.
        self._epochs = self._calls_of_fit = 1
        self.images = self._sample().epoch_images
        ahead = _ahead_of(data) if parallel_batches is None else Ahead(parallel_batches=parallel_batches)
        self._ramp_steps = steady_part(ahead, self.windows.steps_of(self._fed)).first
        if is_fit_data(data):
            self._epochs = epochs_for(self._sample())
        else:  # each call of `fit` reads it once
            self._calls_of_fit = epochs_for(self._sample())

    def rates(self) -> dict[str, float]:
        """Measures one window. Returns images per second in steady steps, and in whole epochs."""
        samples = [self._sample() for _ in range(self._calls_of_fit)]
        images = sum(one.epoch_images for one in samples)

        def rate(seconds: Callable[[Sample], float]) -> float:
            return images / sum(one.epoch_images * seconds(one) for one in samples)

        return {STEADY: rate(lambda one: one.s_per_image), EPOCH: rate(Sample.whole_s_per_image)}

    def _sample(self) -> Sample:
        run: Callable[..., Sample] = self.windows.train if self._train else self.windows.loader
        return run(self._fed, epochs=self._epochs, ramp_steps=self._ramp_steps, round_=0, limit_s=self._limit_s)


def _ahead_of(data: Any) -> Ahead:
    try:
        return adapter(data).ahead(data)
    except CutError:  # this TensorFlow does not let its graphs be read
        return Ahead()
