"""Lays out the bars and sweeps of a comparison of devices: numbers in, coordinates for small SVGs out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.devices.findings import Swept
from benchmarks.devices.results import CaseResult
from benchmarks.devices.tables import device_text
from profiles.report import COLOURS, PART_COLOURS, Frame, Tick, round_step
from profiles.results import Parts

FRAME = Frame(width=520, height=260, left=64, right=508, top=34, bottom=226)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a bar, in per cent of the longest bar."""

    width: float
    colour: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Where the time of one example goes on one device."""

    label: str
    text: str
    pieces: tuple[Piece, ...]


def bars_of(rows: Sequence[CaseResult]) -> tuple[Bar, ...]:
    """Lays out where the time goes, a bar a device, those that can be split; parts below nothing are left out."""
    split = [(row, row.result.attribution.seconds_per_image) for row in rows if row.result is not None]
    longest_s = max((sum(_shown(parts)) for _, parts in split), default=0.0)
    return tuple(
        Bar(
            label=device_text(row),
            text=f"{1e3 * sum(_shown(parts)):.3g} ms",
            pieces=tuple(
                Piece(width=round(100 * seconds / longest_s, 2), colour=colour, title=f"{name} {1e3 * seconds:.3g} ms")
                for part, (name, colour) in PART_COLOURS.items()
                if (seconds := parts[part] or 0.0) > 0
            ),
        )
        for row, parts in split
    )


def _shown(parts: Parts[float | None]) -> list[float]:
    return [seconds for seconds in parts.values() if seconds is not None and seconds > 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A rate along a sweep: whole where it trains, dashed where the model runs alone."""

    label: str
    colour: str
    dashed: bool
    points: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One axis of one network: images/sec by value."""

    title: str
    levels: tuple[Tick, ...]
    values: tuple[Tick, ...]
    curves: tuple[Curve, ...]


def panels_of(swept: Sequence[Swept]) -> tuple[Panel, ...]:
    """Lays out every sweep, all feeds and devices of a network in one panel, from 0 up, values at equal distances."""
    groups: dict[tuple[str, str, str], list[Swept]] = {}
    for one in swept:
        groups.setdefault((one.experiment, one.base.model, one.axis), []).append(one)
    return tuple(_panel(f"{model}: images/sec by {axis}", group) for (_, model, axis), group in groups.items())


def _panel(title: str, group: Sequence[Swept]) -> Panel:
    values = list(dict.fromkeys(point.value for one in group for point in one.points))
    series = [
        (f"{one.label}{', the model alone' * alone}", COLOURS[number % len(COLOURS)], alone, _rates(one, alone))
        for number, one in enumerate(group)
        for alone in (False, True)
    ]
    known = [rate for *_, rates in series for rate in rates.values()]
    step = round_step(max(known) / 4)
    count = max(1, math.ceil(max(known) / step - 1e-9))

    def place(value: int | str, rate: float) -> tuple[float, float]:
        share = (values.index(value) + 0.5) / len(values)
        x = FRAME.left + (FRAME.right - FRAME.left) * share
        return round(x, 1), round(FRAME.bottom - (FRAME.bottom - FRAME.top) * rate / (count * step), 1)

    curves = []
    for label, colour, dashed, rates in series:
        dots = tuple(
            Dot(x=x, y=y, title=f"{label}, {value}: {rate:,.0f}")
            for value, rate in rates.items()
            for x, y in (place(value, rate),)
        )
        if dots:
            points = " ".join(f"{dot.x},{dot.y}" for dot in dots)
            curves.append(Curve(label=label, colour=colour, dashed=dashed, points=points, dots=dots))
    return Panel(
        title=title,
        levels=tuple(
            Tick(at=place(values[0], number * step)[1], text=f"{number * step:,.6g}") for number in range(count + 1)
        ),
        values=tuple(Tick(at=place(value, 0)[0], text=f"{value}") for value in values),
        curves=tuple(curves),
    )


def _rates(one: Swept, alone: bool) -> dict[int | str, float]:
    rates = {
        point.value: point.row.compute_images_per_sec if alone else point.row.images_per_sec for point in one.points
    }
    return {value: rate for value, rate in rates.items() if rate is not None}
