"""Where a figure is not as flat, or as much in proportion, as it should be: pure functions from rounds to findings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.scaling_expectations import EXPECTATIONS, Expectation, Law
from benchmarks.scaling_points import AXES, FIGURES, Row
from profiles.checks import CANARY_RATIO
from profiles.statistics import median, median_interval


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


def series_of(rows: Iterable[Row]) -> tuple[Series, ...]:
    """Returns every figure of every variant along every axis, without the values at which nothing was measured."""
    rows = list(rows)
    slow_ns = slow_canary_ns(rows)
    grouped: dict[tuple[str, str], list[Row]] = {}
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


def slow_canary_ns(rows: Iterable[Row]) -> float:
    """Returns the canary's time above which the machine was slow; infinite where nothing was measured."""
    canaries = [one.canary_ns for row in rows for one in row.measurements]
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
    of the 95 % interval over the rounds that have both; one round has no spread to show.
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
    if not beyond or median(beyond) <= 0 or median_interval(beyond)[0] <= 0:
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
