"""Reads a loader by a plain loop, as a training loop does: for data that are neither Keras' nor tf.data's."""

from __future__ import annotations

import math
from typing import Any

from unstall.profiles.gate.verdicts import EPOCH, STEADY
from unstall.profiles.measure.ahead import Ahead
from unstall.profiles.measure.batches import batch_images
from unstall.profiles.measure.loop import timed_loop
from unstall.profiles.measure.schedule import TRAIN_WINDOW_S
from unstall.profiles.measure.steps import TimedEpoch, steady_part


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
        first, second = self._epoch(), self._epoch()  # the first epoch may be slower, because it fills caches
        self.images = sum(step.images or 0 for step in first.steps)
        self._epochs = max(1, math.ceil(TRAIN_WINDOW_S * 1e9 / (second.end_ns - second.begin_ns)))
        self._steady = steady_part(Ahead(parallel_batches=workers), len(second.steps))

    def rates(self) -> dict[str, float]:
        """Measures one window. Returns images per second in steady steps, and in whole epochs."""
        records = [self._epoch().record(self._steady) for _ in range(self._epochs)]
        return {
            STEADY: sum(one.steady_images or 0 for one in records) / sum(one.steady_ns for one in records) * 1e9,
            EPOCH: sum(one.images or 0 for one in records) / sum(one.outer_ns for one in records) * 1e9,
        }

    def _epoch(self) -> TimedEpoch:
        epoch = timed_loop(
            lambda: iter(self._data() if callable(self._data) else self._data),
            images_in=batch_images,
            limit_s=self._limit_s,
            too_long=self._too_long,
        )
        if not epoch.steps:
            raise ValueError("The data must give at least one batch in every epoch. Received: none.")
        return epoch

    def _too_long(self, batches: int) -> ValueError:
        return ValueError(
            f"An epoch must end within {self._limit_s:.0f} s. Received: {batches} batches and no end. "
            "Give fewer batches."
        )
