"""Derives the rates of a sweep from its samples: at each value, and along each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unstall.benchmarks.pipeline.sweep.axes import AXES, Value
from unstall.benchmarks.pipeline.sweep.findings import (
    FIGURES,
    Finding,
    Series,
    Shape,
    expected_rates,
    find,
    shape_of,
)
from unstall.benchmarks.pipeline.sweep.plan import Point
from unstall.benchmarks.pipeline.sweep.samples import MeasuredPlace, SweepDocument
from unstall.profiles import Device
from unstall.profiles.results import CANARY_RATIO, Flag, summarise
from unstall.profiles.samples import Sample
from unstall.profiles.statistics import LEAST_ROUNDS, Interval, geometric_mean, median, shared_ratio, spread_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """The rates at a value.

    Attributes:
      rounds: by figure, images/sec over whole epochs in each round.
      model_images_per_sec: of the model alone; None where executions have several steps.
      loading_ratio: the part of an epoch that is loading; None where executions have several steps.
      flags: reasons to doubt the rates.
      disturbed: whether the machine was slow during a window of training or loading.
    """

    point: Point
    device: Device
    rounds: dict[str, dict[int, float]]
    model_images_per_sec: float | None
    loading_ratio: float | None
    flags: tuple[str, ...]
    disturbed: bool

    def rate(self, figure: str) -> float:
        return geometric_mean([*self.rounds[figure].values()])

    @property
    def spread_ratio(self) -> float | None:
        """The relative standard deviation of the rate of training between rounds."""
        return spread_ratio([*self.rounds["train"].values()])


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The results of one variant along one axis.

    Attributes:
      points: in the order of the values, without those at which nothing was measured.
      series: by figure.
      findings: where a rate is not what it should be.
    """

    axis: str
    variant: str
    model: str
    device: Device
    points: tuple[PointResult, ...]
    series: dict[str, Series]
    findings: tuple[Finding, ...]

    @property
    def shape(self) -> Shape:
        return shape_of(self.series["train"])

    def times(self, at: int) -> tuple[float | None, Interval | None]:
        """Returns the rate of training at a point over that at the first, and the 95 % interval of that ratio."""
        return shared_ratio(self.points[at].rounds["train"], self.points[0].rounds["train"])

    def expected(self, figure: str) -> list[float] | None:
        """Returns the least rate that is expected at each point; None where none is."""
        return expected_rates(self.series[figure])


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What is derived from a document.

    Attributes:
      curves: by axis, model, device and variant, in the order of the plan.
      doubts: reasons why some of the results may be chance.
    """

    curves: tuple[Curve, ...]
    doubts: tuple[str, ...]

    @property
    def groups(self) -> list[list[Curve]]:
        """The curves that are shown together: those of an axis, a model and a device."""
        found: dict[tuple[str, str, Device], list[Curve]] = {}
        for curve in self.curves:
            found.setdefault((curve.axis, curve.model, curve.device), []).append(curve)
        return list(found.values())


def derive(document: SweepDocument) -> Results:
    """Returns the rates along each axis, and judges them against what is expected."""
    measured = document.samples
    canaries_ns = [sample.canary_ns for samples in measured.windows.values() for sample in samples]
    typical_ns = median(canaries_ns) if canaries_ns else 1.0
    curves: dict[tuple[str, str, Device, str], list[PointResult]] = {}
    devices = dict.fromkeys(place.subject.device for place in measured.places)
    at = {(place.place, place.subject.device): place for place in measured.places}
    for axis in document.plan.sweeps:
        for device in devices:
            for point in document.plan.points:
                place = None if point.place is None else at.get((point.place, device))
                if point.axis == axis and place is not None:
                    samples = [sample for key in place.windows for sample in measured.windows[key]]
                    result = _point_result(point, place, samples, typical_ns)
                    curves.setdefault((axis, point.model, device, point.variant), []).append(result)
    return Results(
        curves=tuple(_curve(*key, points) for key, points in curves.items()),
        doubts=tuple(_doubts(document.plan.rounds, canaries_ns, typical_ns)),
    )


def _doubts(rounds: int, canaries_ns: Sequence[int], typical_ns: float) -> list[str]:
    doubts = []
    if rounds < LEAST_ROUNDS:
        doubts.append(f"fewer than {LEAST_ROUNDS} rounds show no spread, so that any difference may be chance")
    disturbed = sum(canary_ns > CANARY_RATIO * typical_ns for canary_ns in canaries_ns)
    if disturbed:
        doubts.append(f"the machine was slow before {disturbed} of {len(canaries_ns)} windows")
    return doubts


def _point_result(point: Point, place: MeasuredPlace, samples: Sequence[Sample], typical_ns: float) -> PointResult:
    """Derives the rates at a value, and what an epoch is made of where its steps were timed."""
    model: float | None = None
    loading: float | None = None
    flags: tuple[Flag, ...] = ()
    if place.place.steps_per_execution is None and any(sample.window == "resident" for sample in samples):
        result = summarise(place.subject, samples, typical_canary_ns=typical_ns)
        model, loading, flags = result.model_images_per_sec, result.attribution.loading_ratio, result.flags
    return PointResult(
        point=point,
        device=place.subject.device,
        rounds={
            figure: {
                sample.round: 1 / sample.whole_s_per_image(place.subject.images)
                for sample in samples
                if sample.window == figure
            }
            for figure in FIGURES
        },
        model_images_per_sec=model,
        loading_ratio=loading,
        flags=(*place.subject.notes, *map(str, flags)),
        disturbed=any(sample.canary_ns > CANARY_RATIO * typical_ns for sample in samples if sample.window in FIGURES),
    )


def _curve(axis: str, model: str, device: Device, variant: str, points: Sequence[PointResult]) -> Curve:
    place = points[0].point.place
    assert place is not None
    series = {
        figure: Series(
            axis=axis,
            variant=variant,
            figure=figure,
            decode=place.config.decode,
            values=tuple(result.point.value for result in points),
            rounds=tuple(result.rounds[figure] for result in points),
            disturbed=any(result.disturbed for result in points),
        )
        for figure in FIGURES
    }
    return Curve(
        axis=axis,
        variant=variant,
        model=model,
        device=device,
        points=tuple(points),
        series=series,
        findings=tuple(finding for one in series.values() if (finding := find(one)) is not None),
    )


def rows_of(results: Results) -> list[dict[str, Any]]:
    """Returns a flat row for each value, for tables of other programs."""
    rows = []
    for curve in results.curves:
        expected = {figure: curve.expected(figure) for figure in FIGURES}
        for number, result in enumerate(curve.points):
            ratio, interval = curve.times(number)
            low, high = interval or (None, None)
            rows.append(
                {
                    "axis": curve.axis,
                    "value": result.point.value,
                    "variant": curve.variant,
                    "model": curve.model,
                    "device": curve.device.name,
                    "images_per_sec": result.rate("train"),
                    "spread_ratio": result.spread_ratio,
                    "times": ratio,
                    "times_low": low,
                    "times_high": high,
                    "expected_images_per_sec": _at(expected["train"], number),
                    "loader_images_per_sec": result.rate("loader"),
                    "expected_loader_images_per_sec": _at(expected["loader"], number),
                    "compute_images_per_sec": result.model_images_per_sec,
                    "loading_ratio": result.loading_ratio,
                }
            )
    return rows


def _at(rates: Sequence[float] | None, number: int) -> float | None:
    return None if rates is None else rates[number]


def value_text(axis: str, value: Value) -> str:
    """Returns a value for a table."""
    return f"{value:,}" if AXES[axis].most else f"{value}"
