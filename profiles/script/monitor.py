"""A Keras callback for long runs: images/sec and waiting, epoch by epoch, in Keras' own logs."""

from __future__ import annotations

from typing import Any

from profiles.script.epochs import EpochRecord
from profiles.script.watch import WatchCallback
from profiles.statistics import median


class StallMonitor(WatchCallback):
    """Logs how fast each epoch trained and how much of it waited for data.

    Put it first in `callbacks`: Keras hands one dictionary of logs from callback to callback, so that those behind it
    (TensorBoard, W&B, MLflow, CSVLogger) see what it adds:

    - `images_per_sec`: over the epoch's steady steps, without the first two and those that traced the model;
    - `loading_ratio`: the part of the epoch, without validation and tracing, that waited for a batch, or went by
      before its first step and behind its last; what a loader takes by using the model's cores is not in it;
    - `wait_ms_per_step`: what a step waited for its batch.

    What cannot be known is left out: on a GPU, whose host runs ahead, the loading ratio; with `steps_per_execution`
    above 1 the wait, since TensorFlow then draws batches while it computes. What is trained stays the same bit for bit.
    """

    def __init__(self) -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        assert self.watch is not None
        if logs is None or not self.watch.records or self.watch.records[-1].epoch != epoch:
            return
        logs.update({key: value for key, value in _values(self.watch.records[-1]).items() if value is not None})

    def summary(self) -> dict[str, float | str]:
        """Returns the medians over the last `fit`'s epochs; "unknown" for what could not be known, and then `why`."""
        records = list(self.watch.records) if self.watch is not None else []
        found: dict[str, float | str] = {}
        for key in ("images_per_sec", "loading_ratio", "wait_ms_per_step"):
            values = [value for record in records if (value := _values(record)[key]) is not None]
            found[key] = median(values) if values else "unknown"
        if "unknown" in found.values():
            found["why"] = self._why(records)
        return found

    def _why(self, records: list[EpochRecord]) -> str:
        if self.watch is not None and self.watch.why_unknown is not None:
            return self.watch.why_unknown
        if not records:
            return "no epoch has ended"
        if any(record.asynchronous for record in records):
            return "the device runs on behind the host, so that the host's wait is not the device's"
        return "no epoch had a steady step, or its images cannot be counted"


def _values(record: EpochRecord) -> dict[str, float | None]:
    return {
        "images_per_sec": record.images_per_sec,
        "loading_ratio": record.loading_ratio,
        "wait_ms_per_step": record.wait_ms_per_step,
    }
