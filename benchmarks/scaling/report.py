"""Derives results from the document of a scaling run, prints tables and findings, and draws a page with charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unstall.benchmarks.scaling.findings import (
    EXPECTATIONS,
    TOLERANCE_RATIO,
    Expectation,
    Finding,
    checks,
    find,
    series_of,
    slow_canary_ns,
)
from unstall.benchmarks.scaling.parser import AXES
from unstall.benchmarks.scaling.plan import FIGURES, Asked, Measurements, PointResult
from unstall.pipeline import PipelineConfig
from unstall.pipeline.variants import other_work
from unstall.profiles.report import Document, Kind, charts, html
from unstall.profiles.report.document import content_of
from unstall.profiles.statistics import median

# Most times grow in proportion to the value, which is a straight line on two logarithmic axes. The others are mostly
# flat.
_LOGARITHMIC = ("first_batch_s", "listing_s", "listing_again_s", "build_s")


def charts_of(axis: str, results: Sequence[PointResult], findings: Sequence[Finding]) -> tuple[Markup, ...]:
    """Draws every figure that was measured along an axis, a line for each variant.

    Args:
      results: of all axes.
      findings: of all axes.
    """
    here = [result for result in results if result.point.axis == axis]
    values = sorted({result.point.value for result in here})
    variants = list(dict.fromkeys(result.point.place.variant for result in results))
    rings = {
        (finding.figure, finding.variant, finding.value): "wrong doubtful" if finding.doubtful else "wrong"
        for finding in findings
        if finding.axis == axis
    }
    drawn = []
    for name, figure in FIGURES.items():
        lines = [
            charts.Line(
                label=variant,
                points=tuple(
                    charts.Point(
                        x=result.point.value,
                        y=summary[0],
                        low=summary[1],
                        high=summary[2],
                        text=f"{variant}, {result.point.value:,}: {figure.with_unit(summary[0])}",
                        ring=rings.get((name, variant, result.point.value), ""),
                    )
                    for result in here
                    if result.point.place.variant == variant and (summary := result.summary(name)) is not None
                ),
                style=style,
            )
            for style, variant in enumerate(variants)
        ]
        numbers = [number for result in here for number in result.summary(name) or ()]
        if numbers:
            y = _vertical_axis(name, min(numbers), max(numbers))
            drawn.append(charts.line_chart(charts.log_axis_of_values(AXES[axis], values), y, lines))
    return tuple(drawn)


def _legend(variants: Mapping[str, PipelineConfig]) -> Markup:
    """Returns a legend: each variant's line and name, and how its work differs, as `other_work` says."""
    points = (charts.Point(x=0, y=0, text="a median"),)  # only a point with a text has a shape
    return charts.legend_of_lines(
        charts.Line(
            label=f"{name} ({', '.join(work)})" if (work := other_work(config)) else name, points=points, style=style
        )
        for style, (name, config) in enumerate(variants.items())
    )


def _vertical_axis(name: str, least: float, most: float) -> charts.Axis:
    """Returns an axis that holds all numbers of a figure."""
    figure = FIGURES[name]
    if name in _LOGARITHMIC and least > 0:
        return charts.log_axis(figure.title, least, most, per_unit=figure.per_unit)
    return charts.axis_from_zero(figure.title, most, per_unit=figure.per_unit)


# This many variants fit 80 columns, with names that are broken at hyphens into lines of this many letters.
_VARIANTS_A_TABLE = 4
_NAME_COLUMNS = 14

# A block of a table: its title, and a cell for each value and variant.
Block = tuple[str, list[list[str]]]
ScalingDocument = Document[Asked, Measurements]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What is derived from a document.

    Attributes:
      points: every point, with what was measured there.
      findings: where a figure is not as it should be.
      checked: the expectation of each check that could be made; one expectation may be checked for several variants.
      doubts: reasons why some of the results may be chance.
    """

    points: tuple[PointResult, ...]
    findings: tuple[Finding, ...]
    checked: tuple[Expectation, ...]
    doubts: tuple[str, ...]


def derive(document: ScalingDocument) -> Results:
    """Returns all points with what was measured there, and judges them against what is expected."""
    measured = {place.place: place for place in document.samples.places}
    points = tuple(
        PointResult(
            point=point,
            measurements=measured[point.place].measurements,
            failure=measured[point.place].failure,
        )
        for point in document.plan.points
    )
    series = series_of(points)
    return Results(
        points=points,
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
        "doubts": results.doubts,
        "findings": results.findings,
    }


def _page(document: ScalingDocument, results: Results) -> str:
    asked, points = document.plan, results.points
    variants = list(asked.variants)
    axes = [
        {
            "name": axis,
            "unit": AXES[axis],
            "charts": charts_of(axis, points, results.findings),
            "findings": [finding for finding in results.findings if finding.axis == axis],
            "expectations": [
                expectation
                for expectation in EXPECTATIONS
                if expectation.axis == axis and expectation in results.checked
            ],
            "table": blocks_of(axis, points, variants, values),
            "values": values,
            "failures": failures(axis, points),
        }
        for axis, values in asked.axes.items()
    ]
    return html.template(Path(__file__).with_name("scaling.html.j2")).render(
        document=content_of(document, KIND, results),
        axes=axes,
        figures=FIGURES,
        variants=variants,
        tolerance=TOLERANCE_RATIO,
        legend=_legend(asked.variants),
    )


def _print(console: Console, document: ScalingDocument, results: Results) -> None:
    """Prints a table for each axis, then what is not as it should be."""
    variants = list(document.plan.variants)
    for axis, values in document.plan.axes.items():
        for start in range(0, len(variants), _VARIANTS_A_TABLE):
            _print_table(console, axis, results.points, variants[start : start + _VARIANTS_A_TABLE], values)
        _print_lines(console, [f"no result: {line}" for line in failures(axis, results.points)], style="yellow")
    checked = len(results.checked)
    text = f"\n{checked - len(results.findings)} of {checked} checks are as they should be."
    console.print(Text(text, style="bold"))
    _print_lines(console, results.doubts, style="yellow")
    _print_lines(console, [finding.line for finding in results.findings if not finding.doubtful])
    if doubtful := [finding.line for finding in results.findings if finding.doubtful]:
        console.print("doubtful, the machine was slow beside them:")
        _print_lines(console, doubtful, style="dim")


def _flat(results: Results) -> list[dict[str, Any]]:
    return [_flat_point(point) for point in results.points if point.measurements]


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, report=_page, print=_print, rows=_flat)


def _flat_point(result: PointResult) -> dict[str, Any]:
    point = result.point
    flat: dict[str, Any] = {"axis": point.axis, "value": point.value, "variant": point.place.variant}
    for figure in FIGURES:
        middle, low, high = result.summary(figure) or (None, None, None)
        flat |= {figure: middle, f"{figure}_low": low, f"{figure}_high": high}
    return flat


def failures(axis: str, results: Sequence[PointResult]) -> list[str]:
    """Returns where on an axis something could not be measured, and why."""
    return [
        f"{result.point.place.variant} at {result.point.value:,} {AXES[axis]}: {result.failure}"
        for result in results
        if result.point.axis == axis and result.failure is not None
    ]


def blocks_of(axis: str, results: Sequence[PointResult], variants: Sequence[str], values: Sequence[int]) -> list[Block]:
    """Returns a table's blocks, one for each figure, with a row for each value and a cell for each variant.

    On the axis of cores, a block of efficiency follows the rate: images/sec over the images/sec of one core times the
    number of cores.
    """
    at = {(result.point.place.variant, result.point.value): result for result in results if result.point.axis == axis}
    blocks: list[Block] = []
    for figure in FIGURES:
        cells = [[_cell(at.get((variant, value)), figure) for variant in variants] for value in values]
        blocks.append((FIGURES[figure].title, cells))
        if axis == "cores" and figure == "images_per_sec":
            cells = [[_efficiency(at, variant, value, values[0]) for variant in variants] for value in values]
            blocks.append(("efficiency", cells))
    return blocks


def _cell(result: PointResult | None, figure: str) -> str:
    summary = result.summary(figure) if result is not None else None
    if summary is None:
        return "-"
    middle, low, high = summary
    spread = f" ±{max(high - middle, middle - low) / middle:.0%}" if high > low and middle else ""
    return f"{FIGURES[figure].in_unit(middle)}{spread}"


def _efficiency(at: dict[tuple[str, int], PointResult], variant: str, value: int, least: int) -> str:
    rates = [
        result.by_round("images_per_sec") if (result := at.get((variant, cores))) is not None else {}
        for cores in (value, least)
    ]
    common = set(rates[0]) & set(rates[1])
    if not common:
        return "-"
    return f"{median([rates[0][round_] / rates[1][round_] for round_ in common]) * least / value:.2f}"


def _print_table(
    console: Console, axis: str, results: Sequence[PointResult], variants: Sequence[str], values: Sequence[int]
) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0), title=AXES[axis], title_justify="left", title_style="bold")
    table.add_column("", no_wrap=True)
    for variant in variants:
        table.add_column("\n".join(_folded(variant)), justify="right", vertical="bottom", no_wrap=True)
    for title, cells in blocks_of(axis, results, variants, values):
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
