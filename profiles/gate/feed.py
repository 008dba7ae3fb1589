"""Measures the images/sec of a feed (a pipeline, or a function) in this process, one window at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from unstall.profiles import clock
from unstall.profiles.devices import CPU, Device
from unstall.profiles.gate.decision import EPOCH, STEADY
from unstall.profiles.measure.ahead import Ahead, ahead_of_workers, ramp_of
from unstall.profiles.measure.batches import check_read_again, first_batches, is_fit_data
from unstall.profiles.measure.measure import shapes
from unstall.profiles.measure.schedule import TRAIN_WINDOW_S, epochs_for
from unstall.profiles.measure.windows import Windows, idle_windows
from unstall.profiles.samples import Sample
from unstall.profiles.stages.ahead import ahead_of
from unstall.profiles.stages.tf_graph import CutError


class Feed:
    """A feed, warmed up, whose images/sec can be measured.

    Args:
      feed: batches (a tf.data.Dataset, a PyDataset, any iterable that can be read again), or a function that returns
        new batches at each call, or a function that does some work and returns how many images it went through.
      model: a compiled model, which is trained in each window. Without a model the feed alone is measured.
      device: the device that trains.
      parallel_batches: how many batches may be prepared at once. Unless given, this is read from a Dataset's graph or
        a PyDataset's workers.
      repeated: what `fit` gets of the feed, where one iterator serves all epochs; the windows measure it.
      limit_s: how long an epoch may take.
    Raises:
      ValueError: if `feed` is none of these, gives no image, or takes longer for an epoch.
    """

    def __init__(
        self,
        feed: Any,
        *,
        model: Any = None,
        device: Device | None = None,
        parallel_batches: int | None = None,
        repeated: Any = None,
        limit_s: float = math.inf,
    ) -> None:
        self.data, self.images_served = feed, 0
        self._limit_s = limit_s
        self._calls = 0
        self._train = model is not None
        counted = None
        if callable(feed) and not is_fit_data(feed):
            returned = feed()
            if isinstance(returned, (int, np.integer)) and not isinstance(returned, bool):
                counted = int(returned)
            elif is_fit_data(returned):
                self.data = returned
            elif not hasattr(returned, "__iter__"):
                raise ValueError(
                    f"A feed must return batches, or how many images it went through. Received: {returned!r}."
                )
        if counted is not None:
            self._open_count(counted)
            return
        if not (callable(self.data) or is_fit_data(self.data) or hasattr(self.data, "__iter__")):
            raise ValueError(f"A feed must be batches, or a function. Received: {type(feed).__name__}.")
        check_read_again(self.data)
        self._fed = self.data if repeated is None else repeated
        self._ramp_steps = 1
        if model is None:
            self.windows = idle_windows(device or CPU)
        else:
            self.windows = Windows(model, device or CPU)
            self.windows.prepare(shapes(first_batches(self.data)))
        # The first epoch may be slower, because it fills caches; the second tells how long an epoch takes from then on.
        self._epochs = self._calls_of_fit = 1
        self.images_served = self._sample().epoch_images
        ahead = _ahead_of(self.data) if parallel_batches is None else Ahead(parallel_batches=parallel_batches)
        self._ramp_steps, _ = ramp_of(ahead, self.windows.steps_of(self._fed))
        if is_fit_data(self.data):
            self._epochs = epochs_for(self._sample())
        else:  # each call of `fit` reads it once
            self._calls_of_fit = epochs_for(self._sample())

    def rates(self) -> dict[str, float]:
        """Measures one window.

        Returns:
          Images per second in steady steps (`STEADY`) and in whole epochs, their edges included (`EPOCH`). A function
          that counts its images has no steps, and so only `EPOCH`.
        """
        if self._calls:
            return {EPOCH: self._rate_of_calls(self._calls)}
        samples = [self._sample() for _ in range(self._calls_of_fit)]
        images = sum(one.epoch_images for one in samples)

        def rate(seconds: Callable[[Sample], float]) -> float:
            return images / sum(one.epoch_images * seconds(one) for one in samples)

        return {STEADY: rate(lambda one: one.s_per_image), EPOCH: rate(Sample.whole_s_per_image)}

    def _sample(self) -> Sample:
        run: Callable[..., Sample] = self.windows.train if self._train else self.windows.loader
        return run(self._fed, epochs=self._epochs, ramp_steps=self._ramp_steps, round_=0, limit_s=self._limit_s)

    def _open_count(self, images: int) -> None:
        if self._train:
            raise ValueError("A model can only be trained on batches. Received: a function that counts images itself.")
        if images < 1:
            raise ValueError(f"A feed must go through at least 1 image. Received: {images}.")
        self.images_served = images
        began_ns = clock.now_ns()
        self._images_of(1)
        self._calls = max(1, math.ceil(TRAIN_WINDOW_S * 1e9 / max(clock.now_ns() - began_ns, 1)))

    def _rate_of_calls(self, calls: int) -> float:
        began_ns = clock.now_ns()
        images = self._images_of(calls)
        return images / (clock.now_ns() - began_ns) * 1e9

    def _images_of(self, calls: int) -> int:
        images = sum(int(self.data()) for _ in range(calls))
        if images < 1:
            raise ValueError(f"A feed must go through at least 1 image. Received: {images}.")
        return images


def _ahead_of(data: Any) -> Ahead:
    try:
        return ahead_of(data)
    except CutError:  # this TensorFlow does not let its graphs be read
        return ahead_of_workers(data)
