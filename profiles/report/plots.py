"""Lays out line graphs of the machine during a run: computes coordinates for an SVG from a trace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from profiles.machine.telemetry import Trace

# Colours that stand out on white and that people with any colour vision can tell apart. Source: M. Okabe, K. Ito,
# "Color Universal Design", 2008.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7f7f7f")
# The first so many lines of a graph are solid, the others dashed.
_SOLID = 4
# Of more columns than this, a graph shows only the mean and the highest value.
_MOST_LINES = len(COLOURS)
# More points would be less than two pixels apart: neighbours are averaged.
_MOST_POINTS = 540
_TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)
_MOST_TICKS = 15
_SCALES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
# Width of a letter at the font size of labels.
_LETTER_PX = 6.5

Column = Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The size of an SVG, and the edges of the graph in it, in pixels."""

    width: int = 1160
    height: int = 190
    left: int = 60
    right: int = 1144
    top: int = 44
    bottom: int = 166


FRAME = Frame()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A labelled position on an axis, in pixels."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A phase of the run, from `left` to `right` in pixels; `text` is empty where it does not fit, `title` is not."""

    left: float
    right: float
    text: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A column of a trace, as `points` attributes of SVG polylines. Missing values divide a line into several."""

    label: str
    label_x: float
    colour: str
    dashed: bool
    polylines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The graph of one quantity over the run."""

    title: str
    levels: tuple[Tick, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """All graphs of a run, over one axis of time."""

    times: tuple[Tick, ...]
    bands: tuple[Band, ...]
    graphs: tuple[Graph, ...]


def graphs_of(trace: Trace) -> Graphs | None:
    """Lays out a trace; None for a trace with fewer than two rows."""
    if len(trace.seconds) < 2:
        return None
    end_s = max(trace.seconds[-1], *(mark.seconds for mark in trace.marks), 0.0)
    begins = (0.0, *trace.seconds)
    middles = [(begin + end) / 2 for begin, end in zip(begins, trace.seconds, strict=False)]
    cpu = dict(zip((f"core {core}" for core in trace.cores), trace.cpu_ratio, strict=True))
    gpu = {f"GPU {index}": column for index, column in enumerate(trace.gpu_ratio)}
    gpu_memory = {f"GPU {index}": column for index, column in enumerate(trace.gpu_memory_bytes)}
    celsius = {f"GPU {index}": column for index, column in enumerate(trace.gpu_celsius)}
    watts = {f"GPU {index}": column for index, column in enumerate(trace.gpu_watts)}
    graphs = (
        _ratios("CPU use", cpu, middles, end_s),
        _bytes("Memory of the run's processes", "", {"memory": trace.memory_bytes}, middles, end_s),
        _bytes("Disk reads of the machine", "/s", {"disks": trace.disk_read_bytes_per_sec}, middles, end_s),
        _ratios("GPU use", gpu, middles, end_s),
        _bytes("GPU memory", "", gpu_memory, middles, end_s),
        _scaled("GPU temperature", 1.0, "\N{DEGREE SIGN}C", celsius, middles, end_s),
        _scaled("GPU power", 1.0, "W", watts, middles, end_s),
    )
    return Graphs(
        times=_times(end_s),
        bands=_bands(trace, end_s),
        graphs=tuple(graph for graph in graphs if graph is not None),
    )


def _x(seconds: float, end_s: float) -> float:
    return round(FRAME.left + (FRAME.right - FRAME.left) * seconds / end_s, 1)


def _y(value: float, top: float) -> float:
    return round(FRAME.bottom - (FRAME.bottom - FRAME.top) * value / top, 1)


def _times(end_s: float) -> tuple[Tick, ...]:
    step = next((step for step in _TICKS_S if end_s / step <= _MOST_TICKS), _TICKS_S[-1])
    return tuple(Tick(at=_x(second, end_s), text=f"{second:,} s") for second in range(0, math.floor(end_s) + 1, step))


def _bands(trace: Trace, end_s: float) -> tuple[Band, ...]:
    phases = [mark for mark in trace.marks if mark.phase]
    ends = [*(mark.seconds for mark in phases), end_s][1:]
    edges = [(_x(mark.seconds, end_s), _x(end, end_s)) for mark, end in zip(phases, ends, strict=True)]
    texts = [mark.text for mark in phases]
    if not all(_fits(text, left, right) for text, (left, right) in zip(texts, edges, strict=True)):
        texts = [text.rpartition(" ")[2] for text in texts]  # "round 12" becomes "12"
    return tuple(
        Band(left=left, right=right, text=text if _fits(text, left, right) else "", title=mark.text)
        for mark, text, (left, right) in zip(phases, texts, edges, strict=True)
    )


def _fits(text: str, left: float, right: float) -> bool:
    return (len(text) + 1) * _LETTER_PX <= right - left


def _ratios(title: str, columns: Mapping[str, Column], middles: Sequence[float], end_s: float) -> Graph | None:
    if not _values(columns):
        return None
    levels = tuple(Tick(at=_y(percent, 100), text=f"{percent} %") for percent in (0, 25, 50, 75, 100))
    return Graph(title=title, levels=levels, lines=_lines(columns, middles, end_s, 1.0))


def _bytes(title: str, per: str, columns: Mapping[str, Column], middles: Sequence[float], end_s: float) -> Graph | None:
    values = _values(columns)
    if not values:
        return None
    scale, unit = next(((scale, unit) for scale, unit in _SCALES if max(values) >= scale), (1e6, "MB"))
    return _scaled(title, scale, f"{unit}{per}", columns, middles, end_s)


def _scaled(
    title: str, scale: float, unit: str, columns: Mapping[str, Column], middles: Sequence[float], end_s: float
) -> Graph | None:
    values = _values(columns)
    if not values:
        return None
    step = round_step(max(values) / scale / 4)
    count = max(1, math.ceil(max(values) / scale / step - 1e-9))
    levels = tuple(Tick(at=_y(index, count), text=f"{round(index * step, 6):g} {unit}") for index in range(count + 1))
    return Graph(title=title, levels=levels, lines=_lines(columns, middles, end_s, count * step * scale))


def round_step(least: float) -> float:
    """Returns the smallest of 1, 2, 2.5 and 5 times a power of ten that is at least `least`; 1 for 0 or less."""
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * (1 - 1e-9))


def _values(columns: Mapping[str, Column]) -> list[float]:
    """Returns the values of all columns, without the missing ones."""
    return [value for column in columns.values() for value in column if value is not None]


def _lines(columns: Mapping[str, Column], middles: Sequence[float], end_s: float, top: float) -> tuple[Line, ...]:
    if len(columns) > _MOST_LINES:
        rows = [[value for value in row if value is not None] for row in zip(*columns.values(), strict=True)]
        columns = {
            f"mean of {len(columns)}": [sum(row) / len(row) if row else None for row in rows],
            "highest of them": [max(row, default=None) for row in rows],
        }
    lines: list[Line] = []
    label_x = FRAME.right
    for index, (label, column) in reversed(list(enumerate(columns.items()))):
        label_x -= round(len(label) * _LETTER_PX)
        lines.insert(
            0,
            Line(
                label=label,
                label_x=label_x,
                colour=COLOURS[index],
                dashed=index >= _SOLID,
                polylines=_polylines(column, middles, end_s, top),
            ),
        )
        label_x -= 36  # a short piece of the line before its label, and a gap
    return tuple(lines)


def _polylines(column: Column, middles: Sequence[float], end_s: float, top: float) -> tuple[str, ...]:
    pieces: list[list[str]] = [[]]
    size = math.ceil(len(column) / _MOST_POINTS)
    for begin in range(0, len(column), size):
        values = [value for value in column[begin : begin + size] if value is not None]
        times = middles[begin : begin + size]
        if values:
            pieces[-1].append(f"{_x(sum(times) / len(times), end_s)},{_y(sum(values) / len(values), top)}")
        elif pieces[-1]:
            pieces.append([])
    return tuple(" ".join(piece) for piece in pieces if piece)
