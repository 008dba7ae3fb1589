"""The stage tables of a script's data, which are read again for them once the script has ended."""

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

# The stage pass reads a script's data again, and that may block for ever: a queue that nobody fills any more.
STAGES_LIMIT_S = 90.0

_Apart = tuple[StageTable, tuple[AnnotatedFunction, ...]]


def with_stages(document: MeasurementDocument, profiler: Profiler, *, lines: bool) -> tuple[MeasurementDocument, bool]:
    """Adds the stage tables of data that can be read again.

    Args:
      lines: whether to time the lines of the data's Python functions as well.
    Returns:
      The document, and whether reading still blocks: then a thread of ours waits for ever, and no more data is read.
    """
    seen = profiler.seen
    kinds = {fit.name: fit.data_kind for fit in profiler.fits}
    rates = {verdict.result.subject.variant: verdict.result.compute_images_per_sec for verdict in derive(document)}
    subjects: list[Measurement] = []
    blocked_by: str | None = None
    for measurement in document.samples.subjects:
        name = measurement.subject.variant
        if name not in kinds:  # a loop, which Keras has no part in
            subjects.append(measurement)
            continue
        data = seen.get(name)
        apart: _Apart | None
        if name not in seen:
            apart = _not_apart(f"{kinds[name]} cannot be read again: only the waiting was seen")
        elif data is None:
            apart = _not_apart("only the data of the longest fit is read again, and of two more if the script keeps it")
        elif blocked_by is not None:
            apart = _not_apart(f"the data of {blocked_by} was waited for in vain: no more was read")
        else:
            apart = _within(STAGES_LIMIT_S, partial(_taken_apart, data, rates[name], lines))
        if apart is None:
            blocked_by = name
            apart = _not_apart(f"reading the data again did not end within {STAGES_LIMIT_S:g} s")
        subjects.append(replace(measurement, stages=apart[0], lines=apart[1]))
    return replace(document, samples=replace(document.samples, subjects=tuple(subjects))), blocked_by is not None


def _within(limit_s: float, call: Callable[[], _Apart]) -> _Apart | None:
    """Calls in a thread; returns None where it has not ended in time, and leaves it to itself."""
    came: list[_Apart] = []
    thread = threading.Thread(target=lambda: came.append(call()), name="unstall stage pass", daemon=True)
    thread.start()
    thread.join(limit_s)
    return None if thread.is_alive() else came[0]


def _taken_apart(data: Any, compute_images_per_sec: float, lines: bool) -> _Apart:
    """Takes apart what a `fit` was fed, at the pace of its model, in whose place another one sleeps."""
    pace = parse_device(f"emulated:{min(max(compute_images_per_sec, 0.1), 1e7)}")
    try:
        with warnings.catch_warnings(action="ignore"):
            windows = Windows(_a_model(), pace)
            windows.prepare([(np.zeros((1, 1), np.float32), np.zeros((1,), np.float32))])
            return stages_and_lines(data, windows, lines=lines)
    except (Exception, SystemExit) as error:  # anything can happen in a user's pipeline; the rest of the report stands
        first_line = (str(error).strip().splitlines() or [""])[0][:160]
        reason = f"it could not be taken apart ({type(error).__name__}: {first_line})"
        return _not_apart(reason)


def _a_model() -> Any:
    """Returns a model that `fit` can be called on; it takes no step on the data. Its zeros are drawn from no seed."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile("sgd", "mse", jit_compile=False)
    return model


def _not_apart(reason: str) -> _Apart:
    return without_stages(reason, cores=usable_cores()), ()
