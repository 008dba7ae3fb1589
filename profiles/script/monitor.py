"""A Keras callback for long runs: adds images/sec and waiting of each epoch to Keras' logs."""

from __future__ import annotations

import html
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unstall.profiles.measure.epochs import EpochRecord
from unstall.profiles.report.writing_files import write_atomically
from unstall.profiles.script.callback import WatchCallback
from unstall.profiles.statistics import median
from unstall.profiles.text import Terminal

# What is logged of an epoch: fields of its record, each with its words.
_LOGGED = {
    "images_per_sec": "Images or samples a second in the steady steps of the last epoch.",
    "loading_ratio": "Part of the last epoch that was spent waiting for batches.",
    "wait_ms_per_step": "Milliseconds that a steady step of the last epoch waited for its batch.",
}


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

    Args:
      live: prints a line on stderr at the end of each epoch.
      prometheus: a file that holds the values of the last epoch, in the text format of Prometheus, for the textfile
        collector of its node exporter. It is written anew, whole, at the end of each epoch; an error of the disk ends
        that, with a warning, and never the training.
    """

    def __init__(self, *, live: bool = False, prometheus: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self._live = live
        self._prometheus = None if prometheus is None else Path(prometheus)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        assert self.watch is not None
        if logs is None or not self.watch.records or self.watch.records[-1].epoch != epoch:
            return
        record = self.watch.records[-1]
        values = {key: value for key in _LOGGED if (value := getattr(record, key)) is not None}
        logs.update(values)
        if self._live:
            Terminal(stderr=True).print(_line(epoch, values), soft_wrap=True)
        if self._prometheus is not None:
            try:
                write_atomically(self._prometheus, _metrics(epoch, values))
            except OSError as error:
                warnings.warn(f"{self._prometheus} cannot be written: {error}", stacklevel=2)
                self._prometheus = None

    def summary(self) -> dict[str, float | str]:
        """Returns the median of each value over the epochs of the last `fit`; "unknown" where there is none.

        Where a value is unknown, "why" says why.
        """
        records = list(self.watch.records) if self.watch is not None else []
        medians: dict[str, float | str] = {}
        for key in _LOGGED:
            values = [value for record in records if (value := getattr(record, key)) is not None]
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


def _line(epoch: int, values: Mapping[str, float]) -> str:
    """Returns the values of an epoch in a line; Keras counts epochs from 0, and people from 1."""
    parts = [
        f"{values['images_per_sec']:,.0f} images/sec" if "images_per_sec" in values else "",
        f"{values['loading_ratio']:.0%} of the epoch waiting for data" if "loading_ratio" in values else "",
        f"{values['wait_ms_per_step']:,.1f} ms a step" if "wait_ms_per_step" in values else "",
    ]
    return f"epoch {epoch + 1}: {', '.join(part for part in parts if part) or 'no steady step'}"


def _metrics(epoch: int, values: Mapping[str, float]) -> str:
    """Returns values in the text format of Prometheus."""
    lines = [f"# HELP unstall_epoch The last epoch, from 0.\n# TYPE unstall_epoch gauge\nunstall_epoch {epoch}\n"]
    for key, value in values.items():
        lines.append(f"# HELP unstall_{key} {_LOGGED[key]}\n# TYPE unstall_{key} gauge\nunstall_{key} {value!r}\n")
    return "".join(lines)


def _shown(value: float | str) -> str:
    return html.escape(value) if isinstance(value, str) else f"{value:,.3g}"
