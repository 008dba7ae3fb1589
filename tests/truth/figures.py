"""Figures with their truth, and how each is judged by its bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from tests.truth.bounds import BIAS_RATIO, BOUNDS, LEAST_REPEATS, PLANTED, WITHIN_RATIO, Bound
from unstall.profiles.statistics import CONFIDENCE, Interval, median


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure with its truth.

    Attributes:
      case: what the figure is of.
      name: of the figure, with its unit.
      truth, measured: a number for each repeat, in the same unit.
    """

    case: str
    name: str
    truth: tuple[float, ...]
    measured: tuple[float, ...]

    def followed_by(self, figure: Figure) -> Figure:
        """Returns this figure with the repeats of another after its own."""
        return replace(self, truth=self.truth + figure.truth, measured=self.measured + figure.measured)


def figure_of(case: str, name: str, truth: float, measured: float) -> Figure:
    return Figure(case=case, name=name, truth=(float(truth),), measured=(float(measured),))


def joined(figures: Iterable[Figure]) -> list[Figure]:
    """Returns one figure for each case and name, with all of its repeats."""
    joint: dict[tuple[str, str], Figure] = {}
    for figure in figures:
        key = figure.case, figure.name
        joint[key] = joint[key].followed_by(figure) if key in joint else figure
    return list(joint.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Bias:
    """The mean of the signed errors over repeats, its 95 % interval, and the chance of such a mean without a bias."""

    mean: float
    interval: Interval
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A figure held against its bound.

    Attributes:
      errors: of each repeat, in points or as parts of the truth.
      bias: None for few repeats, and for what is no planted load.
    """

    figure: Figure
    bound: Bound
    errors: tuple[float, ...]
    bias: Bias | None

    @property
    def off(self) -> float:
        return median(self.errors)

    @property
    def within(self) -> int:
        return sum(map(self.bound.holds, self.errors))

    @property
    def holds(self) -> bool:
        """Whether the repeats are near enough to the truth, and on both sides of it; of few repeats, their median."""
        if self.bias is None:
            return self.bound.holds(self.off)
        biased = self.bias.p_value < 1 - CONFIDENCE and abs(self.bias.mean) > BIAS_RATIO * self.bound.most
        return self.within >= WITHIN_RATIO * len(self.errors) and not biased

    @property
    def row(self) -> tuple[str, ...]:
        """Returns the cells of the table `COLUMNS`, or `REPEATED` where the bias was tested."""
        case, name = self.figure.case, self.figure.name
        if self.bias is None:
            truth, measured = (f"{median(numbers):,.1f}" for numbers in (self.figure.truth, self.figure.measured))
            return case, name, truth, measured, self._text(self.off), self.bound.text
        low, high = map(self._text, self.bias.interval)
        tested = (self._text(self.bias.mean), f"{low} to {high}", f"{self.bias.p_value:.2f}")
        return case, name, str(len(self.errors)), str(self.within), *tested, self.bound.text

    def _text(self, off: float) -> str:
        return f"{off:+.1f}" if self.bound.in_points else f"{off:+.1%}"


COLUMNS = ("case", "figure", "truth", "found", "off", "promised")
REPEATED = ("case", "figure", "repeats", "within", "off", "95% interval", "p", "promised")


def check(group: str, figure: Figure) -> Check:
    """Holds a figure against its bound."""
    bound = BOUNDS[group][figure.name]
    errors = tuple(bound.off(truth, measured) for truth, measured in zip(figure.truth, figure.measured, strict=True))
    bias = _bias(errors) if group in PLANTED and len(errors) >= LEAST_REPEATS else None
    return Check(figure=figure, bound=bound, errors=errors, bias=bias)


def _bias(errors: Sequence[float]) -> Bias:
    """Tests the mean of signed errors against zero."""
    tested = stats.ttest_1samp(errors, 0)
    low, high = tested.confidence_interval(CONFIDENCE)
    return Bias(mean=float(np.mean(errors)), interval=(float(low), float(high)), p_value=float(tested.pvalue))
