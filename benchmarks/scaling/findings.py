"""Where a figure is not as flat along an axis, as much in proportion or as near to a line as it should be.

Pure: rounds in, findings out. What is expected of which figure stands in a table of laws.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.scaling.plan import AXES, FIGURES, Measurement, PointResult
from profiles.results import CANARY_RATIO
from profiles.statistics import median, t_interval

# A place that was measured, on its axis: its value and a figure's number.
At = tuple[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """The figure goes with a power of the value: 0 is flat, 1 in proportion, -2 falls with the pixels of a side.

    Attributes:
      bad: "above" or "below": on which side of the law it may not lie, by more than the tolerance.
      tolerance_ratio: of the law's own number.
      slack: allowed beside it, in the figure's unit.
    """

    power: float
    bad: str
    tolerance_ratio: float
    slack: float = 0.0
    references = 1

    def law(self, earlier: Sequence[At], value: int) -> float:
        reference, number = earlier[0]
        return number * (value / reference) ** self.power

    def says(self, earlier: Sequence[At], at: At, ratio: float) -> str:
        if self.power == 0:
            return f"{ratio:.2f} times as much"
        more = at[0] / earlier[0][0]
        efficiency = f" (efficiency {ratio:.2f})" if self.power == 1 and self.bad == "below" else ""
        return f"{ratio * more**self.power:.3g} times for {more:g} times as many{efficiency}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerUnit:
    """The figure grows by at most so much for each unit of the value."""

    most: float
    slack: float = 0.0
    bad = "above"
    tolerance_ratio = 0.0
    references = 1

    def law(self, earlier: Sequence[At], value: int) -> float:
        reference, number = earlier[0]
        return number + self.most * (value - reference)

    def says(self, earlier: Sequence[At], at: At, ratio: float) -> str:
        return f"{(at[1] - earlier[0][1]) / (at[0] - earlier[0][0]):,.0f} bytes for each one more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The figure lies on the line through two smaller values: a constant cost and one for each unit."""

    tolerance_ratio: float
    slack: float = 0.0
    bad = "above"
    references = 2

    def law(self, earlier: Sequence[At], value: int) -> float:
        (first, low), (second, high) = earlier
        return high + max(0.0, high - low) / (second - first) * (value - second)

    def says(self, earlier: Sequence[At], at: At, ratio: float) -> str:
        return f"{ratio:.2f} times what the line through those gives"


Law = Power | PerUnit | Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a figure should do along an axis; `decode` if that holds only for variants that decode so."""

    axis: str
    figure: str
    should: str
    law: Law
    decode: str | None = None


# 10 %: within it two rates count as the same, as generated and real photos do. 25 %: for times so short that one wait
# for a core shows in them; 10 ms of a first batch, and 0.2 s of what is done once, matter to no epoch.
_STEADY: dict[str, Any] = {"bad": "below", "tolerance_ratio": 0.10}
_FIRST: dict[str, Any] = {"bad": "above", "tolerance_ratio": 0.25, "slack": 0.010}
_ONCE: dict[str, Any] = {"bad": "above", "tolerance_ratio": 0.25, "slack": 0.2}

EXPECTATIONS: tuple[Expectation, ...] = (
    # A step reads, decodes and draws one batch, however long the list is.
    Expectation(axis="files", figure="images_per_sec", should="should not fall", law=Power(power=0, **_STEADY)),
    # Nothing of a first batch needs the rest of the list; what shuffles or draws all of it first pays here.
    Expectation(axis="files", figure="first_batch_s", should="should be flat", law=Power(power=0, **_FIRST)),
    # A file's name (75 bytes as a Python string), its path (150), TensorFlow's copy of it (130) with the bytes that it
    # is made from (130), its place in tf.data's shuffle buffer (150) and its draw (50), with room for longer paths.
    # 20 MB: what allocators keep differs by as much from run to run.
    Expectation(
        axis="files",
        figure="memory_bytes",
        should="should grow by 1,000 bytes a file at most",
        law=PerUnit(most=1000.0, slack=20e6),
    ),
    # The scan opens each file once.
    Expectation(
        axis="files",
        figure="listing_s",
        should="should be in proportion",
        law=Power(power=1, bad="above", tolerance_ratio=0.25, slack=0.05),
    ),
    # Loaders that only take a folder get a link a file; beside that, tracing takes a constant time.
    Expectation(
        axis="files", figure="build_s", should="should lie on a line", law=Line(tolerance_ratio=0.25, slack=0.2)
    ),
    # Photos do not depend on each other. Below 0.8 more than a fifth of the cores does nothing for the rate.
    Expectation(
        axis="cores",
        figure="images_per_sec",
        should="should grow in proportion (efficiency 0.8 at least)",
        law=Power(power=1, bad="below", tolerance_ratio=0.20),
    ),
    Expectation(axis="cores", figure="first_batch_s", should="should not grow", law=Power(power=0, **_FIRST)),
    # A larger batch spreads what a batch costs over more images.
    Expectation(
        axis="batch-size", figure="images_per_sec", should="should be flat or rise", law=Power(power=0, **_STEADY)
    ),
    # An image of the first batch costs what any other costs.
    Expectation(
        axis="batch-size", figure="first_batch_s", should="should be in proportion", law=Power(power=1, **_FIRST)
    ),
    # Reading and decoding a photo of 400 pixels a side costs the same for any size it is resized to.
    Expectation(
        axis="image-size",
        figure="images_per_sec",
        should="should be nearly flat, decoding at full size",
        law=Power(power=0, **_STEADY),
        decode="full",
    ),
    # Decoding, resizing and drawing cost by the pixel; reading and entropy decoding do not grow.
    Expectation(
        axis="image-size",
        figure="images_per_sec",
        should="should not fall faster than the pixels grow",
        law=Power(power=-2, **_STEADY),
        decode="scaled",
    ),
    Expectation(
        axis="image-size",
        figure="first_batch_s",
        should="should not grow faster than the pixels",
        law=Power(power=2, **_FIRST),
    ),
    # The list is the same at each value of the other axes, and so is what is built for it.
    *(
        Expectation(axis=axis, figure=figure, should="should be flat", law=Power(power=0, **_ONCE))
        for axis in ("cores", "batch-size", "image-size")
        for figure in ("listing_s", "build_s")
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Where a figure is not what it should be.

    Attributes:
      expected: what it should do.
      measured: what it did, with numbers.
      ratio: its number over the law's, the median of the rounds.
      doubtful: the machine was slow beside some of what it was drawn from.
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

    def to_dict(self) -> dict[str, Any]:
        names = ("axis", "variant", "figure", "value", "expected", "measured", "ratio", "doubtful")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One figure of one variant along one axis.

    Attributes:
      values: ascending.
      rounds: at each value, the number in each round that has one.
      disturbed: at each value, the rounds in which the machine was slow.
    """

    axis: str
    variant: str
    figure: str
    decode: str
    values: tuple[int, ...]
    rounds: tuple[Mapping[int, float], ...]
    disturbed: tuple[frozenset[int], ...]


def series_of(rows: Iterable[PointResult]) -> tuple[Series, ...]:
    """Returns every figure of every variant along every axis, without the values at which nothing was measured."""
    rows = list(rows)
    slow_ns = slow_canary_ns([measurement for row in rows for measurement in row.measurements])
    grouped: dict[tuple[str, str], list[PointResult]] = {}
    for row in rows:
        if row.measurements:
            grouped.setdefault((row.point.axis, row.point.place.variant), []).append(row)
    return tuple(
        Series(
            axis=axis,
            variant=variant,
            figure=figure,
            decode=group[0].point.place.config.decode,
            values=tuple(row.point.value for row in measured),
            rounds=tuple(row.by_round(figure) for row in measured),
            disturbed=tuple(
                frozenset(one.round for one in row.measurements if one.canary_ns > slow_ns) for row in measured
            ),
        )
        for (axis, variant), group in grouped.items()
        for figure in FIGURES
        if (measured := [row for row in group if row.by_round(figure)])
    )


def slow_canary_ns(measurements: Sequence[Measurement]) -> float:
    """Returns the canary's time above which the machine was slow; infinite where nothing was measured."""
    canaries = [measurement.canary_ns for measurement in measurements]
    return CANARY_RATIO * median(canaries) if canaries else math.inf


def checks(
    series: Iterable[Series], expectations: Sequence[Expectation] = EXPECTATIONS
) -> tuple[tuple[Series, Expectation], ...]:
    """Returns what can be checked: every series with each expectation of it, where enough values were measured."""
    return tuple(
        (one, expectation)
        for one, expectation in itertools.product(series, expectations)
        if (one.axis, one.figure) == (expectation.axis, expectation.figure)
        and expectation.decode in (None, one.decode)
        and len(one.values) > expectation.law.references
    )


def find(series: Iterable[Series], expectations: Sequence[Expectation] = EXPECTATIONS) -> tuple[Finding, ...]:
    """Returns one finding, the worst, for each series and each expectation that it does not meet.

    A value is held against each smaller one. It is a finding where it lies beyond the law, tolerance and slack in all
    of the 95 % interval over the rounds that have both; fewer than three have none, and say what they say.
    """
    found = []
    for one, expectation in checks(series, expectations):
        law = expectation.law
        breaches = [
            breach
            for last in range(law.references, len(one.values))
            for earlier in itertools.combinations(range(last), law.references)
            if (breach := _breach(one, law, earlier, last)) is not None
        ]
        if breaches:
            ratio, earlier, last = max(breaches, key=lambda breach: abs(breach[0] - 1))
            found.append(_finding(one, expectation, earlier, last, ratio))
    return tuple(found)


def _breach(one: Series, law: Law, earlier: tuple[int, ...], last: int) -> tuple[float, tuple[int, ...], int] | None:
    """Returns the number over the law's if it lies beyond what is allowed, and the places that it was held against."""
    places = (*earlier, last)
    sign = 1 if law.bad == "above" else -1
    beyond, ratios = [], []
    for round_ in set.intersection(*(set(one.rounds[place]) for place in places)):
        *before, number = (one.rounds[place][round_] for place in places)
        expected = law.law(
            [(one.values[place], at) for place, at in zip(earlier, before, strict=True)], one.values[last]
        )
        beyond.append(sign * (number - expected) - law.tolerance_ratio * abs(expected) - law.slack)
        ratios.append(number / expected if expected else float(number > 0) + 1)
    if not beyond or median(beyond) <= 0:
        return None
    interval = t_interval(beyond)
    if interval is not None and interval[0] <= 0:
        return None
    return median(ratios), earlier, last


def _finding(one: Series, expectation: Expectation, earlier: tuple[int, ...], last: int, ratio: float) -> Finding:
    figure = FIGURES[one.figure]
    *before, at = ((one.values[place], median(list(one.rounds[place].values()))) for place in (*earlier, last))
    against = " and ".join(f"{figure.with_unit(number)} at {value:,}" for value, number in reversed(before))
    here = f"{figure.with_unit(at[1])} at {at[0]:,} {AXES[one.axis]}"
    return Finding(
        axis=one.axis,
        variant=one.variant,
        figure=one.figure,
        value=one.values[last],
        expected=expectation.should,
        measured=f"{here} against {against}: {expectation.law.says(before, at, ratio)}",
        ratio=ratio,
        doubtful=any(one.disturbed[place] for place in (*earlier, last)),
    )
