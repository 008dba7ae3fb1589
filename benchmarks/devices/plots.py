"""Draws where the time of an example goes on each device, and the rates along each sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from unstall.benchmarks.devices.findings import Point as SweepPoint
from unstall.benchmarks.devices.findings import Swept
from unstall.benchmarks.devices.results import CaseResult
from unstall.benchmarks.devices.tables import device_text
from unstall.profiles.report import bars, charts


def bars_of(results: Sequence[CaseResult]) -> Markup:
    """Draws a bar for each device whose time can be split into parts."""
    return bars.bar_chart([_bar(result) for result in results if result.timing is not None])


def _bar(result: CaseResult) -> bars.Bar:
    assert result.timing is not None
    seconds = result.timing.attribution.seconds_per_image
    whole_s = sum(part_s for part_s in seconds.values() if part_s is not None and part_s > 0)
    return bars.Bar(label=device_text(result), text=f"{1e3 * whole_s:.3g} ms", seconds=seconds)


def sweep_charts(sweeps: Sequence[Swept]) -> tuple[Markup, ...]:
    """Draws the rates along each axis, all feeds and devices of a network in one chart, from 0 up."""
    groups: dict[tuple[str, str, str], list[Swept]] = {}
    for sweep in sweeps:
        groups.setdefault((sweep.experiment, sweep.base.model, sweep.axis), []).append(sweep)
    return tuple(_chart(f"{model}: images/sec", axis, group) for (_, model, axis), group in groups.items())


def _chart(title: str, axis: str, sweeps: Sequence[Swept]) -> Markup:
    """Draws a solid line for the rate of training and a dashed line for the model alone; values at equal distances."""
    names = list(dict.fromkeys(f"{point.value}" for sweep in sweeps for point in sweep.points))
    lines = [line for number, sweep in enumerate(sweeps) for line in _lines(sweep, number, names)]
    most = max(point.y for line in lines for point in line.points if point is not None)
    x, y = charts.axis_of_names(axis, names), charts.axis_from_zero(title, most)
    return Markup("<div>{}{}</div>").format(charts.line_chart(x, y, lines), charts.legend_of_lines(lines))


def _lines(sweep: Swept, style: int, names: Sequence[str]) -> Iterator[charts.Line]:
    def point(at: SweepPoint, label: str, rate: float) -> charts.Point:
        return charts.Point(x=names.index(f"{at.value}"), y=rate, text=f"{label}, {at.value}: {rate:,.0f} images/sec")

    label = sweep.label
    trained = tuple(point(at, label, at.result.images_per_sec) for at in sweep.points)
    yield charts.Line(label=label, points=trained, style=style)
    label = f"{label}, the model alone"
    computed = tuple(
        point(at, label, at.result.compute_images_per_sec)
        for at in sweep.points
        if at.result.compute_images_per_sec is not None
    )
    if computed:
        yield charts.Line(label=label, points=computed, style=style, dashed=True)
