"""Measures the stage tables of a script's data, by reading the data again once the script has ended."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from unstall.profiles.data import adapter
from unstall.profiles.devices import parse_device
from unstall.profiles.provenance import usable_cores
from unstall.profiles.report.measurements import Measurement, MeasurementDocument, derive
from unstall.profiles.stage_table import AnnotatedFunction, StageTable
from unstall.profiles.stages.note import Note
from unstall.profiles.text import Terminal, error_text
from unstall.profiles.trial.progress import ReadingProgress

if TYPE_CHECKING:
    from unstall.profiles.measure.windows import Windows
    from unstall.profiles.script.loops import Loops
    from unstall.profiles.script.profiler import Profiler

# How long reading a script's data again may take. It can block for ever, as on a queue that nothing fills any more.
STAGES_LIMIT_S = 90.0
_INTERRUPTED = "reading the data again was interrupted"

_StagesAndLines = tuple[StageTable, tuple[AnnotatedFunction, ...]]


def with_stages(
    document: MeasurementDocument, watchers: Iterable[Profiler | Loops], *, lines: bool
) -> tuple[MeasurementDocument, bool]:
    """Adds the stage tables of data that can be read again, and to all others the reason why they have none.

    Says on stderr what is read, and how long that takes.

    Args:
      document: of the script.
      watchers: which watched the script. A loop over data that cannot be read again gets no table.
      lines: whether to time the lines of the data's Python functions as well.
    Returns:
      (the document, whether reading blocked). If reading blocked, or the user interrupted it, a daemon thread still
      reads the data, and no further data was read.
    """
    readable_data: dict[str, Any] = {}
    data_of: dict[str, str | None] = {}
    short: dict[str, str] = {}
    for watcher in watchers:
        readable_data |= watcher.readable_data
        short |= {fit.name: fit.short for fit in watcher.fits}
        data_of |= {fit.name: fit.facts.data for fit in watcher.fits if not fit.loop or fit.name in readable_data}
    rates = {verdict.result.subject.variant: verdict.result.compute_images_per_sec for verdict in derive(document)}
    files = {measurement.subject.variant: measurement.subject.unit.files for measurement in document.samples.subjects}
    names = list(files)
    read_names = _first_of_each(names, readable_data)
    progress = ReadingProgress(Terminal(stderr=True), {name: short[name] for name in read_names})
    tables: dict[str, _StagesAndLines] = {}
    unread: str | None = None
    with progress:
        for name in names:
            if name not in data_of:
                continue
            data = readable_data.get(name)
            same = next((other for other in tables if data is not None and readable_data.get(other) is data), None)
            if same is not None:  # two `fit` had the same data
                tables[name] = tables[same]
            elif name not in readable_data:
                tables[name] = _no_stages(f"{data_of[name]} cannot be read again: only the waiting was seen")
            elif data is None:
                tables[name] = _no_stages(
                    "only the data of the longest fit is read again, and other data if the script keeps it"
                )
            elif unread is not None:
                tables[name] = _no_stages(unread)
            else:
                progress.begin(name)
                read = partial(_take_apart, data, rates[name], files[name], lines, progress.note)
                try:
                    in_time = _within(STAGES_LIMIT_S, read)
                    reason = f"reading the data again did not end within {STAGES_LIMIT_S:g} s"
                    unread = None if in_time else f"the data of {name} was waited for in vain: no more was read"
                except KeyboardInterrupt:
                    in_time, reason, unread = None, _INTERRUPTED, _INTERRUPTED
                tables[name] = in_time or _no_stages(reason)
    subjects = tuple(
        replace(measurement, stages=_with_lines_of(measurement, tables[name][0]), lines=tables[name][1])
        if name in tables
        else measurement
        for name, measurement in zip(names, document.samples.subjects, strict=True)
    )
    return replace(document, samples=replace(document.samples, subjects=subjects)), unread is not None


def _first_of_each(names: Sequence[str], readable_data: Mapping[str, Any]) -> list[str]:
    """Returns the names of the `fit` whose data are read: of those with the same data, the first."""
    chosen: dict[int, str] = {}
    for name in names:
        if readable_data.get(name) is not None:
            chosen.setdefault(id(readable_data[name]), name)
    return list(chosen.values())


def _within(limit_s: float, call: Callable[[], _StagesAndLines]) -> _StagesAndLines | None:
    """Runs a call in a daemon thread; returns None if the call does not end in time, and lets its thread go on."""
    results: list[_StagesAndLines] = []
    thread = threading.Thread(target=lambda: results.append(call()), name="unstall stage pass", daemon=True)
    thread.start()
    thread.join(limit_s)
    return None if thread.is_alive() else results[0]


def _take_apart(data: Any, compute_images_per_sec: float, files: int, lines: bool, note: Note) -> _StagesAndLines:
    """Measures the stages of data. Each library's code is imported only for data of its own."""

    def idle() -> Windows:
        from unstall.profiles.measure.windows import idle_windows

        # The emulated device computes as fast as the script's model did.
        return idle_windows(parse_device(f"emulated:{min(max(compute_images_per_sec, 0.1), 1e7)}"))

    try:
        with warnings.catch_warnings(action="ignore"):
            return adapter(data).stages_and_lines(data, idle, lines=lines, files=files, note=note)
    except (Exception, SystemExit) as error:  # a user's pipeline can raise anything; the rest of the report must stay
        reason = f"it could not be taken apart ({error_text(error)})"
        return _no_stages(reason)


def _with_lines_of(measurement: Measurement, table: StageTable) -> StageTable:
    """Returns a table with the lines that were seen while the script ran, where reading again has given none."""
    return table if table.lines or measurement.stages is None else replace(table, lines=measurement.stages.lines)


def _no_stages(reason: str) -> _StagesAndLines:
    return StageTable(cores=usable_cores(), reason=reason), ()
