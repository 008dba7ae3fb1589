"""The document of a scaling run: what follows from it, tables and findings, and a page with graphs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.scaling.findings import EXPECTATIONS, Expectation, Finding, checks, find, series_of, slow_canary_ns
from benchmarks.scaling.plan import AXES, FIGURES, Asked, Measurements, PointResult
from pipeline.variants import other_work
from profiles.report import COLOURS, Document, Frame, Kind, Tick, html, round_step
from profiles.report.document import content_of
from profiles.statistics import median

FRAME = Frame(width=380, height=210, left=58, right=368, top=34, bottom=180)
# From so many on, lines are dashed: the colours begin again.
_SOLID = len(COLOURS)
# Times are in proportion to something: on two logarithmic axes that is a straight line. The others are mostly flat.
_LOGARITHMIC = ("first_batch_s", "listing_s", "build_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A median, the lowest and the highest round; `wrong` where there is a finding, `doubtful` where that is."""

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


def panels_of(axis: str, rows: Sequence[PointResult], findings: Sequence[Finding]) -> tuple[Panel, ...]:
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


# With their names folded at hyphens, so many variants fit 80 columns.
_VARIANTS_A_TABLE = 4
_NAME_COLUMNS = 14

# A block of a table: its title, and a cell for each value and variant.
Block = tuple[str, list[list[str]]]
ScalingDocument = Document[Asked, Measurements]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What follows from a document.

    Attributes:
      rows: every point, with what was measured there.
      findings: where a figure is not as it should be.
      checked: which expectations could be checked, once each time.
      doubts: why some of it may be chance.
    """

    rows: tuple[PointResult, ...]
    findings: tuple[Finding, ...]
    checked: tuple[Expectation, ...]
    doubts: tuple[str, ...]


def derive(document: ScalingDocument) -> Results:
    """Derives the rows of all points from the places, and holds them against what is expected."""
    measured = {one.place: one for one in document.samples.places}
    rows = tuple(
        PointResult(
            point=point,
            measurements=measured[point.place].measurements,
            failure=measured[point.place].failure,
        )
        for point in document.plan.points
    )
    series = series_of(rows)
    return Results(
        rows=rows,
        findings=tuple(find(series)),
        checked=tuple(expectation for _, expectation in checks(series)),
        doubts=tuple(_doubts(document)),
    )


def _doubts(document: ScalingDocument) -> list[str]:
    measurements = [measurement for place in document.samples.places for measurement in place.measurements]
    doubts = ["one round shows no spread: any of it may be chance"] if document.plan.rounds == 1 else []
    slow_ns = slow_canary_ns(measurements)
    disturbed = sum(measurement.canary_ns > slow_ns for measurement in measurements)
    if disturbed:
        doubts.append(f"disturbed: the machine was slow beside {disturbed} of {len(measurements)} measurements")
    return doubts


def _copies(document: ScalingDocument, results: Results) -> dict[str, Any]:
    return {
        "points": _flat(results),
        "checks": len(results.checked),
        "doubts": list(results.doubts),
        "findings": [finding.to_dict() for finding in results.findings],
    }


def _page(document: ScalingDocument, results: Results) -> str:
    asked, rows = document.plan, results.rows
    variants = list(asked.variants)
    axes = [
        {
            "name": axis,
            "unit": AXES[axis],
            "panels": panels_of(axis, rows, results.findings),
            "findings": [finding for finding in results.findings if finding.axis == axis],
            "expectations": [one for one in EXPECTATIONS if one.axis == axis and one in results.checked],
            "table": blocks(axis, rows, variants, values),
            "values": values,
            "failures": failures(axis, rows),
        }
        for axis, values in asked.axes.items()
    ]
    return (
        html.environment(Path(__file__).parent)
        .get_template("scaling.html.j2")
        .render(
            document=content_of(document, KIND, results),
            axes=axes,
            figures=FIGURES,
            frame=FRAME,
            key=key_of(variants),
            work={name: other_work(config) for name, config in asked.variants.items()},
        )
    )


def _print(console: Console, document: ScalingDocument, results: Results) -> None:
    """Prints a table for each axis, then what is not as it should be."""
    variants = list(document.plan.variants)
    for axis, values in document.plan.axes.items():
        for start in range(0, len(variants), _VARIANTS_A_TABLE):
            _print_table(console, axis, results.rows, variants[start : start + _VARIANTS_A_TABLE], values)
        _print_lines(console, [f"no result: {line}" for line in failures(axis, results.rows)], style="yellow")
    checked = len(results.checked)
    console.print(
        f"\n[bold]{checked - len(results.findings)} of {checked} checks are as they should be.[/]", highlight=False
    )
    _print_lines(console, results.doubts, style="yellow")
    _print_lines(console, [finding.line for finding in results.findings if not finding.doubtful])
    if doubtful := [finding.line for finding in results.findings if finding.doubtful]:
        console.print("doubtful, the machine was slow beside them:")
        _print_lines(console, doubtful, style="dim")


def _flat(results: Results) -> list[dict[str, Any]]:
    return [_point(row) for row in results.rows if row.measurements]


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, page=_page, print=_print, rows=_flat)


def _point(row: PointResult) -> dict[str, Any]:
    point: dict[str, Any] = {"axis": row.point.axis, "value": row.point.value, "variant": row.point.place.variant}
    for figure in FIGURES:
        middle, low, high = row.summary(figure) or (None, None, None)
        point |= {figure: middle, f"{figure}_low": low, f"{figure}_high": high}
    return point


def failures(axis: str, rows: Sequence[PointResult]) -> list[str]:
    """Returns where on an axis something could not be measured, and why."""
    return [
        f"{row.point.place.variant} at {row.point.value:,} {AXES[axis]}: {row.failure}"
        for row in rows
        if row.point.axis == axis and row.failure is not None
    ]


def blocks(axis: str, rows: Sequence[PointResult], variants: Sequence[str], values: Sequence[int]) -> list[Block]:
    """Returns a table's blocks: a figure each, a row for each value and a cell for each variant.

    On the axis of cores, efficiency stands behind the rate: images/sec over those of one core times the cores.
    """
    at = {(row.point.place.variant, row.point.value): row for row in rows if row.point.axis == axis}
    found: list[Block] = []
    for figure in FIGURES:
        cells = [[_cell(at.get((variant, value)), figure) for variant in variants] for value in values]
        found.append((FIGURES[figure].title, cells))
        if axis == "cores" and figure == "images_per_sec":
            cells = [[_efficiency(at, variant, value, values[0]) for variant in variants] for value in values]
            found.append(("efficiency", cells))
    return found


def _cell(row: PointResult | None, figure: str) -> str:
    summary = row.summary(figure) if row is not None else None
    if summary is None:
        return "-"
    middle, low, high = summary
    spread = f" ±{max(high - middle, middle - low) / middle:.0%}" if high > low and middle else ""
    return f"{FIGURES[figure].shown(middle)}{spread}"


def _efficiency(at: dict[tuple[str, int], PointResult], variant: str, value: int, least: int) -> str:
    rates = [
        row.by_round("images_per_sec") if (row := at.get((variant, cores))) is not None else {}
        for cores in (value, least)
    ]
    common = set(rates[0]) & set(rates[1])
    if not common:
        return "-"
    return f"{median([rates[0][round_] / rates[1][round_] for round_ in common]) * least / value:.2f}"


def _print_table(
    console: Console, axis: str, rows: Sequence[PointResult], variants: Sequence[str], values: Sequence[int]
) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0), title=AXES[axis], title_justify="left", title_style="bold")
    table.add_column("", no_wrap=True)
    for variant in variants:
        table.add_column("\n".join(_folded(variant)), justify="right", vertical="bottom", no_wrap=True)
    for title, cells in blocks(axis, rows, variants, values):
        table.add_row(Text(title, style="italic"))
        for value, line in zip(values, cells, strict=True):
            table.add_row(f"  {value:,}", *line)
    console.print()
    console.print(table)


def _folded(name: str) -> Iterator[str]:
    """Yields a variant's name in lines that are broken at hyphens."""
    line = ""
    for part in name.replace("-", "-\0").split("\0"):
        if line and len(line + part) > _NAME_COLUMNS:
            yield line
            line = ""
        line += part
    yield line


def _print_lines(console: Console, lines: Sequence[str], style: str = "") -> None:
    table = Table.grid(padding=(0, 1, 0, 0))
    for line in lines:
        table.add_row("-", Text(line, style=style))
    if lines:
        console.print(table)
