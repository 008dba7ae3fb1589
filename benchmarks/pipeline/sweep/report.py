"""Prints a sweep, renders its page with charts, and says which pipeline to try next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.text import Text

from unstall.benchmarks.lab.tables import Table, print_end, print_table
from unstall.benchmarks.pipeline.sweep.axes import AXES
from unstall.benchmarks.pipeline.sweep.findings import FIGURES, TOLERANCE_RATIO, agreement_of, rate_text
from unstall.benchmarks.pipeline.sweep.plan import Asked
from unstall.benchmarks.pipeline.sweep.results import Curve, Results, derive, rows_of, value_text
from unstall.benchmarks.pipeline.sweep.samples import Measurements, SweepDocument
from unstall.pipeline import VARIANTS, PipelineConfig
from unstall.pipeline.variants import other_work
from unstall.profiles.report import (
    Figure,
    Kind,
    Picture,
    Screen,
    ScreenBar,
    ScreenLine,
    charts,
    classes_text,
    html,
    left_out_lines,
)
from unstall.profiles.report.document import content_of
from unstall.profiles.statistics import range_cell

_LEGEND = {
    "img/s": "images trained a second, over whole epochs; ± how much one round differs from another",
    "times": "over the first value, with its 95 % interval",
    "at least": "what is expected, from the rate at the first value",
    "loader": "the loader alone; model: the model alone",
    "load%": "the part of an epoch that is loading",
}
_COLUMNS = {"train": "img/s", "loader": "loader"}
# The rate that the first screen draws: that of training, but along an axis along which only loading should grow.
_JUDGED = {"cores": "loader"}
# What is set by a value in a run of the main job.
_OPTIONS = {"batch-size": "--batch-size {}", "workers": "--set workers={}"}


def _title(curves: Sequence[Curve]) -> str:
    curve = curves[0]
    return f"{curve.axis} of {curve.model} on {curve.device.name}"


def _verdict(curve: Curve) -> Iterable[ScreenLine]:
    shape = curve.shape
    yield ScreenLine(label=shape.label, text=f"{shape.text}. {agreement_of(curve.series['train'])}".strip())
    for finding in curve.findings:
        doubt = " (doubtful: the machine was slow in some rounds)" if finding.doubtful else ""
        yield ScreenLine(label="DEPARTS", text=f"{finding.line}{doubt}.")


def screens_of(document: SweepDocument, results: Results) -> tuple[Screen, ...]:
    """Returns a screen for each axis, model and device; see `Kind`."""
    asked, data = document.plan, document.dataset or {}
    screens = []
    for number, curves in enumerate(results.groups):
        is_last = number == len(results.groups) - 1
        screens.append(
            Screen(
                heading=(
                    f"unstall: {_title(curves)}: {_values_text(asked, curves[0].axis)}",
                    f"{asked.rounds} round{'s' * (asked.rounds != 1)}; {data['images']:,} images, "
                    f"{classes_text(list(data['classes']))}, from {data['name']}",
                ),
                warning=f"Be careful: {'; '.join(results.doubts)}." if results.doubts and not number else None,
                verdict=tuple(line for curve in curves for line in _verdict(curve)),
                picture=_picture(curves),
                why=tuple(left_out_lines(document.left_out)) if is_last else (),
                next=tuple(_next(curves, document, is_last=is_last)),
            )
        )
    return tuple(screens)


def _values_text(asked: Asked, axis: str) -> str:
    return ", ".join(value_text(axis, value) for value in asked.sweeps[axis])


def _picture(curves: Sequence[Curve]) -> Picture:
    """Returns a bar for each variant and value, as long as the rate that is judged, next to what is expected of it."""
    shown = _JUDGED.get(curves[0].axis, "train")
    expects = any(curve.expected(shown) for curve in curves)
    return Picture(
        columns=(_COLUMNS[shown], "at least" if expects else _COLUMNS["loader"]),
        signs={"#": "images/sec" if shown == "train" else f"images/sec of {FIGURES[shown]}"},
        bars=tuple(
            ScreenBar(
                name=f"{curve.variant} {value_text(curve.axis, result.point.value)}",
                cells=(
                    rate_text(result.rate(shown)),
                    _expected_cell(curve, shown, number) if expects else rate_text(result.rate("loader")),
                ),
                parts={"#": result.rate(shown)},
            )
            for curve in curves
            for number, result in enumerate(curve.points)
        ),
    )


def _expected_cell(curve: Curve, figure: str, number: int) -> str:
    expected = curve.expected(figure)
    return "-" if expected is None else rate_text(expected[number])


def _next(curves: Sequence[Curve], document: SweepDocument, *, is_last: bool) -> Iterable[ScreenLine]:
    """Yields the main job with the fastest value where one of its options sets that value, and in the end the tuner."""
    curve, result = max(
        ((curve, result) for curve in curves for result in curve.points), key=lambda pair: pair[1].rate("train")
    )
    given = f"--data {document.as_typed(document.plan.data)} --model {document.as_typed(curve.model)}"
    if curve.axis in _OPTIONS and curve.variant in VARIANTS:  # not one from a file, whose path is not known
        option = _OPTIONS[curve.axis].format(result.point.value)
        code = f"unstall pipeline {given} --variants {shlex.quote(curve.variant)} {option}"
        yield ScreenLine(label="NEXT", text=f"what {curve.variant} waits for at the fastest of these:", code=(code,))
    elif is_last:
        yield ScreenLine(label="NEXT", text="a faster pipeline, as tf.data code:", code=(f"unstall tune {given}",))


def tables_of(curves: Sequence[Curve]) -> list[Table]:
    """Returns a table for each variant, with a row for each value."""
    return [_table(curve) for curve in curves]


def _table(curve: Curve) -> Table:
    columns = {figure: curve.expected(figure) is not None for figure in FIGURES}
    rows = []
    for number, result in enumerate(curve.points):
        ratio, interval = curve.times(number)
        spread = result.spread_ratio
        expected = {figure: (_expected_cell(curve, figure, number),) * shown for figure, shown in columns.items()}
        rows.append(
            (
                value_text(curve.axis, result.point.value),
                rate_text(result.rate("train")),
                "-" if spread is None else f"{spread:.0%}",
                "-" if ratio is None else f"{ratio:.2f}",
                range_cell(interval) if number else "-",
                *expected["train"],
                rate_text(result.rate("loader")),
                *expected["loader"],
                "-" if result.model_images_per_sec is None else rate_text(result.model_images_per_sec),
                "-" if result.loading_ratio is None else f"{result.loading_ratio:.0%}",
            )
        )
    work = other_work(_config(curve))
    return Table(
        title=curve.variant + (f" (other work per image: {', '.join(work)})" if work else ""),
        columns=(
            curve.axis,
            *("img/s", "±", "times", "95 %"),
            *("at least",) * columns["train"],
            "loader",
            *("at least",) * columns["loader"],
            "model",
            "load%",
        ),
        rows=rows,
    )


def _config(curve: Curve) -> PipelineConfig:
    """Returns the pipeline at the first value of a curve."""
    place = curve.points[0].point.place
    assert place is not None
    return place.config


def notes_of(curves: Sequence[Curve]) -> list[str]:
    """Returns what a reader must know of the rates, each clause once, with the values that it is about."""
    values: dict[tuple[str, str], list[str]] = {}
    for curve in curves:
        for result in curve.points:
            for flag in result.flags:
                values.setdefault((curve.variant, flag), []).append(value_text(curve.axis, result.point.value))
    axis = curves[0].axis
    return [f"{variant}, {axis} {', '.join(some)}: {flag}" for (variant, flag), some in values.items()]


def _print(console: Console, document: SweepDocument, results: Results) -> None:
    for curves in results.groups:
        console.print()
        console.print(Text(f"{_title(curves)}: {_values_text(document.plan, curves[0].axis)}", style="bold"))
        for line in (line for curve in curves for line in _verdict(curve)):
            console.print(Text(line.text))
        for table in tables_of(curves):
            console.print()
            print_table(console, table)
        for note in notes_of(curves):
            console.print(Text(note, style="dim"))
    console.print()
    print_end(
        console,
        document,
        sentences=results.doubts,
        legend=[f"{word}: {meaning}" for word, meaning in _LEGEND.items()],
    )


def charts_of(curves: Sequence[Curve]) -> Markup:
    """Draws the rates along an axis, from 0 up, a line for each variant; what is expected is dashed."""
    names = list(dict.fromkeys(value_text(curve.axis, one.point.value) for curve in curves for one in curve.points))
    axis = curves[0].axis
    numbers = sorted({int(one.point.value) for curve in curves for one in curve.points}) if AXES[axis].most else []
    x = charts.log_axis_of_values(axis, numbers) if numbers else charts.axis_of_names(axis, names)
    drawn = []
    for figure, title in {**FIGURES, "model": "the model alone"}.items():
        lines = [line for style, curve in enumerate(curves) for line in _lines(curve, figure, style, names)]
        most = max((point.y for line in lines for point in line.points if point is not None), default=0.0)
        if most:
            chart = charts.line_chart(x, charts.axis_from_zero(f"{title}, images/sec", most), lines)
            drawn.append(Markup("<div>{}{}</div>").format(chart, charts.legend_of_lines(lines)))
    return Markup("\n").join(drawn)


def _lines(curve: Curve, figure: str, style: int, names: Sequence[str]) -> Iterable[charts.ChartLine]:
    """Yields the measured line of a figure, and a dashed one where something is expected of it."""
    departs = {finding.figure: "wrong doubtful" if finding.doubtful else "wrong" for finding in curve.findings}
    measured: list[charts.Point] = []
    for number, result in enumerate(curve.points):
        rate = result.model_images_per_sec if figure == "model" else result.rate(figure)
        if rate is None:
            continue
        rates = [*result.rounds.get(figure, {}).values()]
        value = result.point.value
        measured.append(
            charts.Point(
                x=float(value) if AXES[curve.axis].most else names.index(f"{value}"),
                y=rate,
                low=min(rates, default=None),
                high=max(rates, default=None),
                text=f"{curve.variant}, {value_text(curve.axis, value)}: {rate_text(rate)} images/sec",
                ring=departs.get(figure, "") if number == len(curve.points) - 1 else "",
            )
        )
    yield charts.ChartLine(label=curve.variant, points=tuple(measured), style=style)
    expected = curve.expected(figure) if figure in FIGURES else None
    if expected is not None:
        at_least = zip(curve.points, expected, strict=True)
        points = tuple(charts.Point(x=float(result.point.value), y=rate) for result, rate in at_least)
        yield charts.ChartLine(label=f"{curve.variant}, at least", points=points, style=style, dashed=True)


def _page(document: SweepDocument, results: Results) -> str:
    return html.template(Path(__file__).with_name("sweep.html.j2")).render(
        document=content_of(document, KIND, results),
        groups=[
            {
                "title": _title(curves),
                "charts": charts_of(curves),
                "tables": tables_of(curves),
                "notes": notes_of(curves),
            }
            for curves in results.groups
        ],
        legend=_LEGEND,
        tolerance=TOLERANCE_RATIO,
    )


def _copies(document: SweepDocument, results: Results) -> dict[str, Any]:
    return {
        "points": rows_of(results),
        "curves": [
            {
                "axis": curve.axis,
                "variant": curve.variant,
                "model": curve.model,
                "device": curve.device.name,
                "shape": asdict(curve.shape),
                "as_expected": not curve.findings,
                "findings": [asdict(finding) for finding in curve.findings],
            }
            for curve in results.curves
        ],
        "doubts": results.doubts,
    }


def _figures(results: Results) -> tuple[Figure, ...]:
    return tuple(
        Figure(
            name=f"{curve.model} on {curve.device.name}: {curve.variant}, {curve.axis} {result.point.value}",
            measure="images-per-sec",
            value=result.rate("train"),
            text=f"{curve.shape.text}.",
        )
        for curve in results.curves
        for result in curve.points
    )


KIND = Kind(
    plan=Asked,
    samples=Measurements,
    derive=derive,
    copies=_copies,
    report=_page,
    print=_print,
    rows=rows_of,
    screens=screens_of,
    figures=_figures,
)
