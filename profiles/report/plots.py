"""Draws the machine during a run: a chart of each quantity that was recorded, over the seconds of the run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from unstall.profiles.machine.telemetry import Trace
from unstall.profiles.report.charts import (
    COLOURS,
    Axis,
    Band,
    ChartLine,
    Point,
    axis_from_zero,
    legend_of_lines,
    line_chart,
)

# More points would be less than two pixels apart: neighbours are averaged.
_MOST_POINTS = 540
_TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)
_MOST_TICKS = 15
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_PERCENT = Axis(title="", low=0, high=1, labels=tuple((percent / 100, f"{percent} %") for percent in range(0, 101, 25)))

Column = Sequence[float | None]
Columns = Mapping[str, Column]


def machine_charts(trace: Trace) -> tuple[Markup, ...]:
    """Draws a trace, a chart for each quantity that has values; nothing of a trace with fewer than two rows."""
    if len(trace.seconds) < 2:
        return ()
    time = _time_axis(max(trace.seconds[-1], *(mark.seconds for mark in trace.marks), 0.0))
    begins = (0.0, *trace.seconds)
    middles = [(begin + end) / 2 for begin, end in zip(begins, trace.seconds, strict=False)]
    cpu = dict(zip((f"core {core}" for core in trace.cores), trace.cpu_ratio, strict=True))
    gpu, gpu_memory, celsius, watts = (
        {f"GPU {index}": column for index, column in enumerate(columns)}
        for columns in (trace.gpu_ratio, trace.gpu_memory_bytes, trace.gpu_celsius, trace.gpu_watts)
    )
    memory, disks = {"memory": trace.memory_bytes}, {"disks": trace.disk_read_bytes_per_sec}
    quantities: tuple[tuple[str, Columns, Axis], ...] = (
        ("CPU use", cpu, _PERCENT),
        ("Memory of the run's processes", memory, _bytes_axis(memory)),
        ("Disk reads of the machine", disks, _bytes_axis(disks, "/s")),
        ("GPU use", gpu, _PERCENT),
        ("GPU memory", gpu_memory, _bytes_axis(gpu_memory)),
        ("GPU temperature", celsius, axis_from_zero("", _most(celsius), unit="\N{DEGREE SIGN}C")),
        ("GPU power", watts, axis_from_zero("", _most(watts), unit="W")),
    )
    return tuple(
        _chart(title, time, axis, _lines(columns, middles), _bands(trace, time.high))
        for title, columns, axis in quantities
        if _values(columns)
    )


def _chart(title: str, time: Axis, axis: Axis, lines: Sequence[ChartLine], bands: Sequence[Band]) -> Markup:
    chart = line_chart(time, axis, lines, bands=bands, wide=True, title=title)
    return Markup("\n").join([chart, legend_of_lines(lines)]) if len(lines) > 1 else chart


def _time_axis(end_s: float) -> Axis:
    step = next((step for step in _TICKS_S if end_s / step <= _MOST_TICKS), _TICKS_S[-1])
    labels = tuple((second, f"{second:,} s") for second in range(0, math.floor(end_s) + 1, step))
    return Axis(title="", low=0.0, high=end_s, labels=labels)


def _bytes_axis(columns: Columns, per: str = "") -> Axis:
    most = _most(columns)
    per_unit, unit = next(((size, unit) for size, unit in _BYTES if most >= size), (1e6, "MB"))
    return axis_from_zero("", most, per_unit=per_unit, unit=f"{unit}{per}")


def _bands(trace: Trace, end_s: float) -> tuple[Band, ...]:
    phases = [mark for mark in trace.marks if mark.phase]
    ends = [*(mark.seconds for mark in phases), end_s][1:]
    return tuple(Band(begin=mark.seconds, end=end, text=mark.text) for mark, end in zip(phases, ends, strict=True))


def _values(columns: Columns) -> list[float]:
    """Returns the values of all columns, without the missing ones."""
    return [value for column in columns.values() for value in column if value is not None]


def _most(columns: Columns) -> float:
    return max(_values(columns), default=0.0)


def _lines(columns: Columns, middles: Sequence[float]) -> tuple[ChartLine, ...]:
    """Returns a line for each column; the mean and the highest value where there are too many to tell apart."""
    if len(columns) > COLOURS:
        rows = [[value for value in row if value is not None] for row in zip(*columns.values(), strict=True)]
        columns = {
            f"mean of {len(columns)}": [sum(row) / len(row) if row else None for row in rows],
            "highest of them": [max(row, default=None) for row in rows],
        }
    return tuple(
        ChartLine(label=label, points=_points(column, middles), style=index)
        for index, (label, column) in enumerate(columns.items())
    )


def _points(column: Column, middles: Sequence[float]) -> tuple[Point | None, ...]:
    size = math.ceil(len(column) / _MOST_POINTS)
    points: list[Point | None] = []
    for begin in range(0, len(column), size):
        values = [value for value in column[begin : begin + size] if value is not None]
        times = middles[begin : begin + size]
        points.append(Point(x=sum(times) / len(times), y=sum(values) / len(values)) if values else None)
    return tuple(points)
