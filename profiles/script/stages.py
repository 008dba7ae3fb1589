"""Measures the stage tables of a script's data, by reading the data again once the script has ended."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np

from profiles.devices import parse_device
from profiles.measure.windows import Windows
from profiles.provenance import usable_cores
from profiles.report.measurements import Measurement, MeasurementDocument, derive
from profiles.script.profiler import Profiler
from profiles.stage_table import AnnotatedFunction, StageTable, without_stages
from profiles.stages.take_apart import stages_and_lines

# How long reading a script's data again may take. It can block for ever, as on a queue that nothing fills any more.
STAGES_LIMIT_S = 90.0

_StagesAndLines = tuple[StageTable, tuple[AnnotatedFunction, ...]]


def with_stages(document: MeasurementDocument, profiler: Profiler, *, lines: bool) -> tuple[MeasurementDocument, bool]:
    """Adds the stage tables of data that can be read again, and to all others the reason why they have none.

    Args:
      document: of the script.
      profiler: that watched the script.
      lines: whether to time the lines of the data's Python functions as well.
    Returns:
      (the document, whether reading blocked). If reading blocked, a daemon thread still waits for the data, and no
      further data was read.
    """
    readable_data = profiler.readable_data
    kinds = {fit.name: fit.data_kind for fit in profiler.fits}
    rates = {verdict.result.subject.variant: verdict.result.compute_images_per_sec for verdict in derive(document)}
    subjects: list[Measurement] = []
    taken_apart: list[tuple[Any, _StagesAndLines]] = []
    blocked_by: str | None = None
    for measurement in document.samples.subjects:
        name = measurement.subject.variant
        if name not in kinds:  # a loop without Keras
            subjects.append(measurement)
            continue
        data = readable_data.get(name)
        tables = next((tables for other, tables in taken_apart if other is data), None)
        if tables is not None:  # two `fit` had the same data
            pass
        elif name not in readable_data:
            tables = _no_stages(f"{kinds[name]} cannot be read again: only the waiting was seen")
        elif data is None:
            tables = _no_stages(
                "only the data of the longest fit is read again, and of two more if the script keeps it"
            )
        elif blocked_by is not None:
            tables = _no_stages(f"the data of {blocked_by} was waited for in vain: no more was read")
        else:
            tables = _within(STAGES_LIMIT_S, partial(_take_apart, data, rates[name], lines))
            if tables is not None:
                taken_apart.append((data, tables))
        if tables is None:
            blocked_by = name
            tables = _no_stages(f"reading the data again did not end within {STAGES_LIMIT_S:g} s")
        subjects.append(replace(measurement, stages=tables[0], lines=tables[1]))
    return replace(document, samples=replace(document.samples, subjects=tuple(subjects))), blocked_by is not None


def _within(limit_s: float, call: Callable[[], _StagesAndLines]) -> _StagesAndLines | None:
    """Runs a call in a daemon thread; returns None if the call does not end in time, and lets its thread go on."""
    results: list[_StagesAndLines] = []
    thread = threading.Thread(target=lambda: results.append(call()), name="unstall stage pass", daemon=True)
    thread.start()
    thread.join(limit_s)
    return None if thread.is_alive() else results[0]


def _take_apart(data: Any, compute_images_per_sec: float, lines: bool) -> _StagesAndLines:
    """Measures the stages of a `fit`'s data, on an emulated device that computes as fast as the script's model did."""
    pace = parse_device(f"emulated:{min(max(compute_images_per_sec, 0.1), 1e7)}")
    try:
        with warnings.catch_warnings(action="ignore"):
            windows = Windows(_stand_in_model(), pace)
            windows.prepare([(np.zeros((1, 1), np.float32), np.zeros((1,), np.float32))])
            return stages_and_lines(data, windows, lines=lines)
    except (Exception, SystemExit) as error:  # a user's pipeline can raise anything; the rest of the report must stay
        first_line = (str(error).strip().splitlines() or [""])[0][:160]
        reason = f"it could not be taken apart ({type(error).__name__}: {first_line})"
        return _no_stages(reason)


def _stand_in_model() -> Any:
    """Returns a model to call `fit` on, which takes no step on the data. Initial zeros change no random state."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile("sgd", "mse", jit_compile=False)
    return model


def _no_stages(reason: str) -> _StagesAndLines:
    return without_stages(reason, cores=usable_cores()), ()
