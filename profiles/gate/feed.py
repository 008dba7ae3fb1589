"""Measures the images/sec of a feed (a pipeline, or a function) in this process, one window at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unstall.profiles import clock
from unstall.profiles.data import adapter
from unstall.profiles.devices import Device
from unstall.profiles.gate.loop_windows import LoopWindows
from unstall.profiles.gate.verdicts import EPOCH
from unstall.profiles.measure.batches import is_fit_data
from unstall.profiles.measure.schedule import TRAIN_WINDOW_S

# How a feed is measured: what is tf.data's or Keras', and what trains a model, by `fit`; other batches by a plain loop,
# whether Keras is there or not; a function that does the work by calling it. Rates of two ways cannot be compared.
FIT, LOOP, CALLS = "fit", "loop", "calls"


class Feed:
    """A feed, warmed up, whose images/sec can be measured.

    Args:
      feed: batches (a tf.data.Dataset, a PyDataset, any iterable that can be read again), or a function that returns
        new batches at each call, or a function that does some work and returns how many images it went through.
      model: a compiled model, which is trained in each window. Without a model the feed alone is measured.
      device: the device that trains.
      parallel_batches: how many batches may be prepared at once. Unless given, this is read from a Dataset's graph, or
        from the workers of a PyDataset or a DataLoader.
      repeated: what `fit` gets of the feed, where one iterator serves all epochs; the windows measure it.
      limit_s: how long an epoch may take.
    Attributes:
      reading: `FIT`, `LOOP` or `CALLS`.
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
        self.data = feed
        returned: Any = feed
        if callable(feed) and not is_fit_data(feed):
            returned = feed()
            if isinstance(returned, (int, np.integer)) and not isinstance(returned, bool):
                self.reading = CALLS
                self._open_count(int(returned), trains=model is not None)
                return
            if is_fit_data(returned):
                self.data = returned
            elif not hasattr(returned, "__iter__"):
                raise ValueError(
                    f"A feed must return batches, or how many images it went through. Received: {returned!r}."
                )
        if not (callable(self.data) or is_fit_data(self.data) or hasattr(self.data, "__iter__")):
            raise ValueError(f"A feed must be batches, or a function. Received: {type(feed).__name__}.")
        adapter(self.data).check_read_again(self.data)
        if model is None and not is_fit_data(self.data):
            self.reading = LOOP
            workers = parallel_batches or max(adapter(returned).workers(returned), 1)
            self.opened: Any = LoopWindows(self.data, workers, limit_s)
        else:
            from unstall.profiles.gate.fit_windows import FitWindows

            self.reading = FIT
            self.opened = FitWindows(
                self.data,
                model=model,
                device=device,
                parallel_batches=parallel_batches,
                repeated=repeated,
                limit_s=limit_s,
            )
        self.images_served: int = self.opened.images

    def rates(self) -> dict[str, float]:
        """Measures one window.

        Returns:
          Images per second in steady steps (`STEADY`) and in whole epochs, their edges included (`EPOCH`). A function
          that counts its images has no steps, and so only `EPOCH`.
        """
        if self.reading == CALLS:
            return {EPOCH: self._rate_of_calls(self._calls)}
        rates: dict[str, float] = self.opened.rates()
        return rates

    def _open_count(self, images: int, *, trains: bool) -> None:
        if trains:
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
