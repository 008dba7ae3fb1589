"""Shows the first steps of training and their waits over time: as a chart, and as a trace that Perfetto opens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from unstall.profiles.machine.telemetry import Trace
from unstall.profiles.report.bars import Strip, strips
from unstall.profiles.results.result import Result
from unstall.profiles.samples import Sample

# Rows of the trace that belong to the machine and not to a subject have this process number.
_MACHINE = 1
# Tracks of a subject in the trace.
_WAITS, _STEPS = 1, 2


def timeline(results: Iterable[Result]) -> Markup | None:
    """Draws the first steps of each result, a row each, all of one scale; None where no step was kept."""
    rows = []
    for result in results:
        sample = _sample(result)
        if sample is not None:
            pieces = [
                (part, ns / 1e6)
                for wait_ns, rest_ns in sample.first_steps_ns
                for part, ns in (("prep_stall", wait_ns), ("compute", rest_ns))
            ]
            rows.append(Strip(label=result.subject.label, pieces=tuple(pieces)))
    return strips(rows, {"prep_stall": "waiting for a batch", "compute": "the step"}, unit="ms") if rows else None


def _sample(result: Result) -> Sample | None:
    """Returns the window whose steps are shown: the last, when everything is warm."""
    kept = [sample for sample in result.explained if sample.first_steps_ns]
    return kept[-1] if kept else None


def trace_of(results: Sequence[Result], telemetry: Trace | None, name: str) -> dict[str, Any]:
    """Returns a trace in Chrome's JSON form, times in microseconds.

    Each subject is a process with a track for waits and one for steps; each of its windows begins where the window
    before ended. The machine is a process of counters, over the seconds of the run, with its phases as events.

    Args:
      name: of what was measured.
    Source: the Trace Event Format of Chromium, which Perfetto reads.
    """
    events: list[dict[str, Any]] = []
    for number, result in enumerate(results, start=_MACHINE + 1):
        subject = result.subject
        events.append(_named("process_name", number, 0, f"{subject.label}: {subject.model} on {subject.device.name}"))
        events += [_named("thread_name", number, _WAITS, "waits"), _named("thread_name", number, _STEPS, "steps")]
        events += _steps(result, number)
    if telemetry is not None:
        events.append(_named("process_name", _MACHINE, 0, "the machine during the run"))
        events += _machine(telemetry)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"measured": name}}


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _event(name: str, process: int, thread: int, begin_us: float, us: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": process, "tid": thread, "ts": begin_us, "dur": us, "args": args}


def _steps(result: Result, process: int) -> list[dict[str, Any]]:
    events = []
    at_us = 0.0
    for sample in result.explained:
        for number, (wait_ns, rest_ns) in enumerate(sample.first_steps_ns):
            events.append(_event("wait", process, _WAITS, at_us, wait_ns / 1e3, round=sample.round, step=number))
            at_us += wait_ns / 1e3
            events.append(_event("step", process, _STEPS, at_us, rest_ns / 1e3, round=sample.round, step=number))
            at_us += rest_ns / 1e3
    return events


def _machine(trace: Trace) -> list[dict[str, Any]]:
    begins_s = (0.0, *trace.seconds)
    events = []
    quantities = {
        "cores busy": [sum(row) for row in zip(*trace.cpu_ratio, strict=True)] if trace.cpu_ratio else [],
        "memory, MB": [_scaled(value, 1e6) for value in trace.memory_bytes],
        "disk reads, MB/s": [_scaled(value, 1e6) for value in trace.disk_read_bytes_per_sec],
        **{
            f"GPU {number}, %": [_scaled(value, 0.01) for value in column]
            for number, column in enumerate(trace.gpu_ratio)
        },
    }
    for name, column in quantities.items():
        events += [
            {"ph": "C", "name": name, "pid": _MACHINE, "ts": 1e6 * second, "args": {name: value}}
            for second, value in zip(begins_s, column, strict=False)
            if value is not None
        ]
    phases = [mark for mark in trace.marks if mark.phase]
    end_s = max([mark.seconds for mark in trace.marks] + list(trace.seconds), default=0.0)
    ends_s = [*(mark.seconds for mark in phases), end_s][1:]
    for mark, end in zip(phases, ends_s, strict=True):
        events.append(_event(mark.text, _MACHINE, 1, 1e6 * mark.seconds, 1e6 * max(end - mark.seconds, 0.0)))
    return events


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit
