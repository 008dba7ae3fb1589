"""Reads a loader by a plain loop, as a training loop does: for data that are neither Keras' nor tf.data's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from unstall.profiles import clock
from unstall.profiles.gate.verdicts import EPOCH, STEADY
from unstall.profiles.measure.ahead import Ahead, ramp_of
from unstall.profiles.measure.batches import batch_images
from unstall.profiles.measure.schedule import TRAIN_WINDOW_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _Epoch:
    """One epoch: the images of each step, when each batch was there, and the moments around it, in nanoseconds."""

    images: tuple[int, ...]
    fetched_ns: tuple[int, ...]
    began_ns: int
    ended_ns: int


class LoopWindows:
    """Windows of whole epochs, read by a plain loop.

    Args:
      data: batches, read again by `iter(data)`, or a function that returns batches.
      workers: that make batches at the same time, which then arrive at the same time.
      limit_s: how long an epoch may take.
    Raises:
      ValueError: if the data give no batch, or an epoch does not end in time.
    """

    def __init__(self, data: Any, workers: int, limit_s: float) -> None:
        self._data, self._limit_s = data, limit_s
        self.images = sum(self._epoch().images)  # the first epoch may be slower, because it fills caches
        second = self._epoch()
        self._epochs = max(1, math.ceil(TRAIN_WINDOW_S * 1e9 / (second.ended_ns - second.began_ns)))
        self._ramp_steps, _ = ramp_of(Ahead(parallel_batches=workers), len(second.images))

    def rates(self) -> dict[str, float]:
        """Measures one window. Returns images per second in steady steps, and in whole epochs."""
        epochs = [self._epoch() for _ in range(self._epochs)]
        images = steady_images = steady_ns = 0
        for epoch in epochs:
            images += sum(epoch.images)
            first = min(max(self._ramp_steps, 1), len(epoch.images) - 1)
            if first:
                steady_images += sum(epoch.images[first:])
                steady_ns += epoch.fetched_ns[-1] - epoch.fetched_ns[first - 1]
        whole_ns = sum(epoch.ended_ns - epoch.began_ns for epoch in epochs)
        whole = images / whole_ns * 1e9
        # An epoch of one batch has no step but its first.
        return {STEADY: steady_images / steady_ns * 1e9 if steady_ns else whole, EPOCH: whole}

    def _epoch(self) -> _Epoch:
        images: list[int] = []
        fetched_ns: list[int] = []
        began_ns = clock.now_ns()
        for batch in self._data() if callable(self._data) else self._data:
            images.append(batch_images(batch))
            fetched_ns.append(clock.now_ns())
            if fetched_ns[-1] - began_ns > self._limit_s * 1e9:
                raise ValueError(
                    f"An epoch must end within {self._limit_s:.0f} s. Received: {len(images)} batches and no end. "
                    "Give fewer batches."
                )
        ended_ns = clock.now_ns()  # the loop has dropped its iterator
        if not images:
            raise ValueError("The data must give at least one batch in every epoch. Received: none.")
        return _Epoch(images=tuple(images), fetched_ns=tuple(fetched_ns), began_ns=began_ns, ended_ns=ended_ns)
