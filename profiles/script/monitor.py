"""A Keras callback for long runs: adds images/sec and waiting of each epoch to Keras' logs."""

from __future__ import annotations

import html
from typing import Any

from profiles.script.callback import WatchCallback
from profiles.script.epochs import EpochRecord
from profiles.statistics import median


class StallMonitor(WatchCallback):
    """Logs how fast each epoch trained, and how much of the epoch was spent waiting for data.

    Put this callback first in `callbacks`: Keras passes one dictionary of logs from callback to callback, so that
    callbacks behind this one (TensorBoard, W&B, MLflow, CSVLogger) see the values that it adds:

    - `images_per_sec`: in the epoch's steady steps, without the first two steps and steps that traced the model;
    - `loading_ratio`: the part of the epoch, without validation and tracing, that was spent waiting for batches, before
      the first step, or behind the last step. Cores that the loader takes from the model do not count;
    - `wait_ms_per_step`: how long a steady step waited for its batch.

    Unknown values are left out: the wait and the loading ratio with `steps_per_execution` above 1, because TensorFlow
    then draws batches while it computes. The training stays the same bit for bit.
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
        """Returns the median of each value over the epochs of the last `fit`; "unknown" where there is none.

        Where a value is unknown, "why" says why.
        """
        records = list(self.watch.records) if self.watch is not None else []
        medians: dict[str, float | str] = {}
        for key in ("images_per_sec", "loading_ratio", "wait_ms_per_step"):
            values = [value for record in records if (value := _values(record)[key]) is not None]
            medians[key] = median(values) if values else "unknown"
        if "unknown" in medians.values():
            medians["why"] = self._why(records)
        return medians

    def _repr_html_(self) -> str:
        """Returns `summary` as a table, for a notebook."""
        rows = (f"<tr><td>{key}</td><td>{_shown(value)}</td></tr>" for key, value in self.summary().items())
        return f"<table>{''.join(rows)}</table>"

    def _why(self, records: list[EpochRecord]) -> str:
        if self.watch is not None and self.watch.why_unknown is not None:
            return self.watch.why_unknown
        if not records:
            return "no epoch has ended"
        return "no epoch had a steady step, or what its batches hold cannot be counted"


def _shown(value: float | str) -> str:
    return html.escape(value) if isinstance(value, str) else f"{value:,.3g}"


def _values(record: EpochRecord) -> dict[str, float | None]:
    return {
        "images_per_sec": record.images_per_sec,
        "loading_ratio": record.loading_ratio,
        "wait_ms_per_step": record.wait_ms_per_step,
    }
