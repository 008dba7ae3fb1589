"""Lays out how figures grow along an axis: numbers in, coordinates for small SVGs out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.scaling_findings import Finding
from benchmarks.scaling_points import FIGURES, Row
from profiles.graphs import COLOURS, Frame, Tick, round_step

FRAME = Frame(width=380, height=210, left=58, right=368, top=34, bottom=180)
# From so many on, lines are dashed: the colours begin again.
_SOLID = len(COLOURS)
# Times are in proportion to something: on two logarithmic axes that is a straight line. The others are mostly flat.
_LOGARITHMIC = ("first_batch_s", "listing_s", "build_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A median with its 95 % interval; `wrong` where there is a finding, `doubtful` where that is."""

    x: float
    y: float
    low_y: float
    high_y: float
    title: str
    wrong: bool
    doubtful: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One variant."""

    colour: str
    dashed: bool
    points: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One figure along one axis."""

    title: str
    levels: tuple[Tick, ...]
    values: tuple[Tick, ...]
    curves: tuple[Curve, ...]


def key_of(variants: Sequence[str]) -> tuple[tuple[str, str, bool], ...]:
    """Returns each variant's name, colour, and whether its line is dashed."""
    return tuple((variant, COLOURS[index % len(COLOURS)], index >= _SOLID) for index, variant in enumerate(variants))


def panels_of(axis: str, rows: Sequence[Row], findings: Sequence[Finding]) -> tuple[Panel, ...]:
    """Lays out every figure of an axis that was measured.

    Args:
      rows: of all axes.
      findings: of all axes.
    """
    here = [row for row in rows if row.point.axis == axis]
    variants = list(dict.fromkeys(row.point.place.variant for row in rows))
    values = sorted({row.point.value for row in here})
    wrong = {(one.figure, one.variant, one.value): one for one in findings if one.axis == axis}
    panels = []
    for name, figure in FIGURES.items():
        summaries = {(row.point.place.variant, row.point.value): row.summary(name) for row in here}
        known = [number for summary in summaries.values() if summary is not None for number in summary]
        if not known:
            continue
        scale = _scale(known, figure.per_unit, logarithmic=name in _LOGARITHMIC)
        curves = []
        for variant, colour, dashed in key_of(variants):
            dots = tuple(
                Dot(
                    x=_x(value, values),
                    y=scale.y(summary[0]),
                    low_y=scale.y(summary[1]),
                    high_y=scale.y(summary[2]),
                    title=f"{variant}, {value:,}: {figure.with_unit(summary[0])}",
                    wrong=(name, variant, value) in wrong,
                    doubtful=(name, variant, value) in wrong and wrong[name, variant, value].doubtful,
                )
                for value in values
                if (summary := summaries.get((variant, value))) is not None
            )
            points = " ".join(f"{dot.x},{dot.y}" for dot in dots)
            curves.append(Curve(colour=colour, dashed=dashed, points=points, dots=dots))
        panels.append(
            Panel(
                title=figure.title,
                levels=scale.levels,
                values=tuple(Tick(at=_x(value, values), text=f"{value:,}") for value in values),
                curves=tuple(curves),
            )
        )
    return tuple(panels)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    low: float
    high: float
    logarithmic: bool
    levels: tuple[Tick, ...] = ()

    def y(self, number: float) -> float:
        ratio = self._along(number)
        return round(FRAME.bottom - (FRAME.bottom - FRAME.top) * ratio, 1)

    def _along(self, number: float) -> float:
        if self.logarithmic:
            return math.log(max(number, self.low) / self.low) / math.log(self.high / self.low)
        return (number - self.low) / (self.high - self.low)


def _scale(known: Sequence[float], per_unit: float, *, logarithmic: bool) -> _Scale:
    """Returns a scale that holds all numbers, from 0 or between round numbers, with labelled levels."""
    if logarithmic and min(known) > 0:
        marks = _round_numbers(min(known) / per_unit, max(known) / per_unit)
    else:
        logarithmic = False
        step = round_step(max(known) / per_unit / 4)
        marks = [step * number for number in range(max(1, math.ceil(max(known) / per_unit / step - 1e-9)) + 1)]
    scale = _Scale(low=marks[0] * per_unit, high=marks[-1] * per_unit, logarithmic=logarithmic)
    levels = tuple(Tick(at=scale.y(mark * per_unit), text=f"{mark:,.10g}") for mark in marks)
    return _Scale(low=scale.low, high=scale.high, logarithmic=logarithmic, levels=levels)


def _round_numbers(low: float, high: float) -> list[float]:
    """Returns the fewest of 1, 2, 5 times powers of ten around two numbers; only powers where they lie far apart."""
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    for factors in ((1, 2, 5), (1,)):
        marks = [factor * 10.0**decade for decade in decades for factor in factors]
        first = max(index for index, mark in enumerate(marks) if mark <= low)
        last = min(index for index, mark in enumerate(marks) if mark >= high and index > first)
        if last - first <= 5:
            break
    return marks[first : last + 1]


def _x(value: int, values: Sequence[int]) -> float:
    """Returns the place of a value, logarithmic: the values of every axis are."""
    if len(values) == 1:
        return (FRAME.left + FRAME.right) / 2
    ratio = math.log(value / values[0]) / math.log(values[-1] / values[0])
    inset = 14
    return round(FRAME.left + inset + (FRAME.right - FRAME.left - 2 * inset) * ratio, 1)
