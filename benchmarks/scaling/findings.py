"""Judges how each figure grows along an axis: compares a least-squares fit with what is expected of the figure.

Pure functions, which take the numbers of rounds and return findings. `EXPECTATIONS` says what each figure should do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unstall.benchmarks.scaling.parser import AXES
from unstall.benchmarks.scaling.plan import FIGURES, Measurement, PointResult
from unstall.profiles.results import CANARY_RATIO
from unstall.profiles.statistics import median, t_interval

# The end of a fit may be this far from what is expected. Most numbers in docs/benchmarks.md, section "Scaling", spread
# by up to a tenth over their rounds: two of them differ by up to a fifth by chance.
TOLERANCE_RATIO = 0.20
# In addition, the end may be this far from what is expected, in the figure's unit. An epoch takes at least a second, so
# that 10 ms of a first batch, or 0.2 s of work that is done once, do not matter. Between equal runs, the freed memory
# that a process keeps differed by some 20 MB.
NEGLIGIBLE = {
    "images_per_sec": 0.0,
    "first_batch_s": 0.010,
    "memory_bytes": 20e6,
    "listing_s": 0.2,
    "listing_again_s": 0.2,
    "build_s": 0.2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a figure should do along an axis. A rate may do better and rise; all other figures may do better and fall.

    Attributes:
      should: the expectation in words.
      power: the figure grows with this power of the value: 0 is flat, 1 in proportion, -2 falls as the pixels grow.
      decode: the expectation is only for variants with this `decode` setting; None for all variants.
    """

    axis: str
    figure: str
    should: str
    power: float = 0.0
    decode: str | None = None


EXPECTATIONS: tuple[Expectation, ...] = (
    # A step reads, decodes and draws one batch, however long the list is.
    Expectation(axis="files", figure="images_per_sec", should="should not fall"),
    # Nothing of a first batch needs the rest of the list; a loader that shuffles or draws all of it first pays here.
    Expectation(axis="files", figure="first_batch_s", should="should be flat"),
    # A file takes its name as bytes, twice with TensorFlow's, and a dozen numbers: little beside the batches, up to
    # 100,000 files. As a string of Python its path alone would take 150 bytes, and TensorFlow's copy of it 130.
    Expectation(axis="files", figure="memory_bytes", should="should be flat"),
    # The first scan opens each file once; another asks for their status, and reads the cache.
    Expectation(axis="files", figure="listing_s", should="should be in proportion", power=1),
    Expectation(axis="files", figure="listing_again_s", should="should be in proportion", power=1),
    # Loaders that only take a folder get a link a file; tracing takes a constant time.
    Expectation(axis="files", figure="build_s", should="should not grow faster than the list", power=1),
    # Photos do not depend on each other. At an efficiency below 0.8, more than a fifth of the cores adds no rate.
    Expectation(
        axis="cores",
        figure="images_per_sec",
        should="should grow in proportion (efficiency 0.8 at least)",
        power=1,
    ),
    Expectation(axis="cores", figure="first_batch_s", should="should not grow"),
    # A larger batch spreads what a batch costs over more images.
    Expectation(axis="batch-size", figure="images_per_sec", should="should be flat or rise"),
    # Each image of the first batch costs the same.
    Expectation(axis="batch-size", figure="first_batch_s", should="should be in proportion", power=1),
    # Reading and decoding a photo of 400 pixels a side costs the same for any size it is resized to.
    Expectation(
        axis="image-size",
        figure="images_per_sec",
        should="should be nearly flat, decoding at full size",
        decode="full",
    ),
    # Decoding, resizing and augmenting cost more for more pixels; reading and entropy decoding do not.
    Expectation(
        axis="image-size",
        figure="images_per_sec",
        should="should not fall faster than the pixels grow",
        power=-2,
        decode="scaled",
    ),
    Expectation(axis="image-size", figure="first_batch_s", should="should not grow faster than the pixels", power=2),
    # The list is the same at each value of these axes, and so is what is built for it.
    *(
        Expectation(axis=axis, figure=figure, should="should be flat")
        for axis in ("cores", "batch-size", "image-size")
        for figure in ("listing_s", "listing_again_s", "build_s")
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Where a figure is not what it should be.

    Attributes:
      value: the largest value of the axis, the end of the fit.
      expected: what the figure should do.
      measured: what the figure did, with numbers.
      ratio: the end of the fit over what was expected there, the median of the rounds.
      doubtful: whether the machine was slow during some of the measurements.
    """

    axis: str
    variant: str
    figure: str
    value: int
    expected: str
    measured: str
    ratio: float
    doubtful: bool

    @property
    def line(self) -> str:
        return f"{self.axis}, {self.variant}: {FIGURES[self.figure].name} {self.expected}; {self.measured}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One figure of one variant along one axis.

    Attributes:
      values: ascending.
      rounds: at each value, the number in each round that has one.
      disturbed: whether the machine was slow during any of the measurements.
    """

    axis: str
    variant: str
    figure: str
    decode: str
    values: tuple[int, ...]
    rounds: tuple[Mapping[int, float], ...]
    disturbed: bool


def series_of(results: Iterable[PointResult]) -> tuple[Series, ...]:
    """Returns every figure of every variant along every axis, without the values at which nothing was measured."""
    results = list(results)
    slow_ns = slow_canary_ns([measurement for result in results for measurement in result.measurements])
    grouped: dict[tuple[str, str], list[PointResult]] = {}
    for result in results:
        if result.measurements:
            grouped.setdefault((result.point.axis, result.point.place.variant), []).append(result)
    return tuple(
        Series(
            axis=axis,
            variant=variant,
            figure=figure,
            decode=group[0].point.place.config.decode,
            values=tuple(result.point.value for result in measured),
            rounds=tuple(result.by_round(figure) for result in measured),
            disturbed=any(
                measurement.canary_ns > slow_ns for result in measured for measurement in result.measurements
            ),
        )
        for (axis, variant), group in grouped.items()
        for figure in FIGURES
        if (measured := [result for result in group if result.by_round(figure)])
    )


def slow_canary_ns(measurements: Sequence[Measurement]) -> float:
    """Returns the canary's time above which the machine was slow; infinite where nothing was measured."""
    canaries = [measurement.canary_ns for measurement in measurements]
    return CANARY_RATIO * median(canaries) if canaries else math.inf


def checks(series: Iterable[Series]) -> tuple[tuple[Series, Expectation], ...]:
    """Returns what can be checked: each series of at least two values, paired with each expectation for the series."""
    return tuple(
        (figures, expectation)
        for figures, expectation in itertools.product(series, EXPECTATIONS)
        if (figures.axis, figures.figure) == (expectation.axis, expectation.figure)
        and expectation.decode in (None, figures.decode)
        and len(figures.values) > 1
    )


def find(series: Iterable[Series]) -> tuple[Finding, ...]:
    """Returns a finding for each series and each expectation that the series does not meet.

    Each round is fitted by itself, so that a machine that is slower in one round than in another is no finding. A
    finding lies beyond both tolerances in all of the 95 % interval over the rounds; fewer than three rounds have no
    interval, and their median decides.
    """
    judged = (_judge(figures, expectation) for figures, expectation in checks(series))
    return tuple(finding for finding in judged if finding is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """The figure at the two ends of a fit, and the figure expected at the second end, given the first."""

    first: float
    last: float
    expected: float


def _judge(series: Series, expectation: Expectation) -> Finding | None:
    sign = -1 if series.figure == "images_per_sec" else 1
    whole_rounds = sorted(set.intersection(*(set(rounds) for rounds in series.rounds)))
    fits = [_fit(series.values, [at[round_] for at in series.rounds], expectation) for round_ in whole_rounds]
    beyond = [
        sign * (fit.last - fit.expected) - TOLERANCE_RATIO * abs(fit.expected) - NEGLIGIBLE[series.figure]
        for fit in fits
    ]
    interval = t_interval(beyond) if beyond else None
    if not beyond or median(beyond) <= 0 or (interval is not None and interval[0] <= 0):
        return None
    fit = _Fit(**{name: median([getattr(fit, name) for fit in fits]) for name in ("first", "last", "expected")})
    return Finding(
        axis=series.axis,
        variant=series.variant,
        figure=series.figure,
        value=series.values[-1],
        expected=expectation.should,
        measured=_measured(series, expectation, fit),
        ratio=median([fit.last / fit.expected for fit in fits]),
        doubtful=series.disturbed,
    )


def _fit(values: Sequence[int], numbers: Sequence[float], expectation: Expectation) -> _Fit:
    """Fits a line through the logarithms."""
    ends = [values[0], values[-1]]
    line = np.polyfit(np.log(values), np.log(np.maximum(numbers, 1e-9)), 1)  # memory may not have grown at all
    first, last = np.exp(np.polyval(line, np.log(ends))).tolist()
    return _Fit(first=first, last=last, expected=first * (ends[1] / ends[0]) ** expectation.power)


def _three_digits(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 1000 else f"{ratio:.3g}"


def _measured(series: Series, expectation: Expectation, fit: _Fit) -> str:
    """Returns in words the figure at both ends of the fit, and how much the figure grew between the ends."""
    figure, first, last = FIGURES[series.figure], series.values[0], series.values[-1]
    ends = f"fitted {figure.with_unit(fit.last)} at {last:,} {AXES[series.axis]} against {figure.with_unit(fit.first)}"
    if expectation.power == 0:
        growth = f"{fit.last / fit.first:.2f} times as much"
    else:
        growth = f"{_three_digits(fit.last / fit.first)} times for {last / first:g} times as many"
        if series.axis == "cores":
            growth += f" (efficiency {fit.last / fit.expected:.2f})"
    return f"{ends} at {first:,}: {growth}"
