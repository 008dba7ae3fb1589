"""What follows from a document of `truth`: each figure held against what is promised of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # `scipy.stats` takes a second to import: it is imported when it is first used

from unstall.benchmarks.truth.coverage import real_intervals
from unstall.benchmarks.truth.plan import Asked
from unstall.benchmarks.truth.promises import (
    ALARMS_BOUND,
    BIAS_RATIO,
    COVERAGE_BOUND,
    EXIT_CODE_BOUND,
    FAULTS,
    GATE_PARTS,
    LEAST_P,
    LEAST_REPEATS,
    LEAST_RIGHT_RATIO,
    MOST_WRONG_RATIO,
    OURS,
    PAIRS,
    PHOTOS,
    PLANTED,
    SHARE_BOUND,
    SHARES,
    SIMULATION,
    WATCHING_RATIO,
    WITHIN_RATIO,
    Bound,
)
from unstall.benchmarks.truth.samples import Attempt, Figure, Group, Measurements
from unstall.profiles.report import Document
from unstall.profiles.results import bound_of
from unstall.profiles.statistics import CONFIDENCE, Interval, geometric_mean, median, ratio_interval

TruthDocument = Document[Asked, Measurements]
# Plain runs of a script, by which its verdicts are judged.
PLAIN = "plain runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bias:
    """The signed errors of a figure over its repeats, in points or as parts of the truth.

    Attributes:
      interval: 95 % interval of their mean.
      p_value: the chance of such a mean where there is no bias, by Student's t.
      within: how many of the repeats lie within the bound.
    """

    mean: float
    interval: Interval
    p_value: float
    within: int
    repeats: int

    def holds(self, bound: Bound) -> bool:
        """Returns whether the repeats are near enough to the truth, and on both sides of it."""
        biased = self.p_value < 1 - CONFIDENCE and abs(self.mean) > BIAS_RATIO * bound.most
        return self.within >= WITHIN_RATIO * self.repeats and not biased


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One figure held against what is promised of it.

    Attributes:
      truth, measured: in the same unit; None where the figure is no number.
      off: how far: in percentage points, or as a part of the truth.
      in_points: which of the two.
      promised: in a few words.
      holds: None where the interval of what was measured is too wide to tell.
      interval: of `measured`; None where there is none.
      bias: the mean of `off` over repeats, its interval, and how many repeats lie within the bound; None for few.
    """

    group: str
    case: str
    figure: str
    promised: str
    holds: bool | None
    truth: float | None = None
    measured: float | None = None
    off: float = 0.0
    in_points: bool = False
    interval: Interval | None = None
    bias: Bias | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCounts:
    """The verdicts on one script, in one place.

    Attributes:
      right, wrong, uncertain: how many.
      low, high: of the share of loading that was measured.
    """

    runs: int
    right: int
    wrong: int
    uncertain: int
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What follows from a document: the checks of each group, by its name."""

    groups: Mapping[str, tuple[Check, ...]]

    @property
    def checks(self) -> tuple[Check, ...]:
        return tuple(check for checks in self.groups.values() for check in checks)

    @property
    def conclusion(self) -> str:
        held = sum(check.holds is True for check in self.checks)
        return f"{held} of {len(self.checks)} figures are as near to the truth as promised."

    @property
    def exit_code(self) -> int:
        """1 where a figure is not as promised, 4 where that cannot be told of one, else 0."""
        answers = {check.holds for check in self.checks}
        return 1 if False in answers else 4 if None in answers else 0


def derive(document: TruthDocument) -> Results:
    """Holds every figure against what is promised of it."""
    groups = document.samples.groups
    return Results(groups={group.name: _JUDGES.get(group.name, _bounded)(group) for group in groups})


_BOUNDS: Mapping[str, Mapping[str, Bound]] = {
    **{name: promise.bounds for name, promise in PLANTED.items()},
    "photos": PHOTOS.bounds,
    "simulated": {"coverage, %": COVERAGE_BOUND},
    SIMULATION: {"false alarms, %": ALARMS_BOUND},
    FAULTS: {"exit code": EXIT_CODE_BOUND},
    SHARES: {OURS: SHARE_BOUND},
    PAIRS: {},
}


def _bounded(group: Group) -> tuple[Check, ...]:
    """Judges the figures that have a bound."""
    bounds = _BOUNDS[group.name]
    return tuple(_within(group.name, figure, bounds[figure.name]) for figure in group.figures if figure.name in bounds)


def _within(group: str, figure: Figure, bound: Bound) -> Check:
    errors = [bound.off(truth, measured) for truth, measured in zip(figure.truth, figure.measured, strict=True)]
    bias = _bias(errors, bound) if group in PLANTED and len(errors) >= LEAST_REPEATS else None
    off = median(errors)
    return Check(
        group=group,
        case=figure.case,
        figure=figure.name,
        promised=bound.text,
        holds=bound.holds(off) if bias is None else bias.holds(bound),
        truth=median(figure.truth),
        measured=median(figure.measured),
        off=off,
        in_points=bound.in_points,
        bias=bias,
    )


def _bias(errors: Sequence[float], bound: Bound) -> Bias:
    """Tests the mean of signed errors against zero."""
    tested = scipy.stats.ttest_1samp(errors, 0)
    low, high = tested.confidence_interval(CONFIDENCE)
    return Bias(
        mean=float(np.mean(errors)),
        interval=(float(low), float(high)),
        p_value=float(tested.pvalue),
        within=sum(map(bound.holds, errors)),
        repeats=len(errors),
    )


def _watching(group: Group) -> tuple[Check, ...]:
    """Judges the ratio of rates with the monitor to those without by its interval, on both sides of 1."""
    checks = []
    for figure in group.figures:
        ratio, interval = ratio_interval(figure.measured, figure.truth)
        check = Check(
            group=group.name,
            case=figure.case,
            figure="images/sec with the monitor, over without",
            promised=f"{WATCHING_RATIO:.0%}",
            holds=_lies_near_1(interval),
            truth=1.0,
            measured=ratio,
            off=ratio - 1,
            interval=interval,
        )
        checks.append(check)
    return tuple(checks)


def _lies_near_1(interval: Interval | None) -> bool | None:
    """Returns whether an interval lies within the promise; None where it reaches beyond, or there is none."""
    if interval is None:
        return None
    low, high = interval
    if low >= 1 - WATCHING_RATIO and high <= 1 + WATCHING_RATIO:
        return True
    return False if high < 1 - WATCHING_RATIO or low > 1 + WATCHING_RATIO else None


def _real(group: Group) -> tuple[Check, ...]:
    """Judges how many of the real intervals hold the truth."""
    real = real_intervals(group.figures)
    truth, measured = 100 * CONFIDENCE, 100 * real.held / real.intervals
    return (
        Check(
            group=group.name,
            case="the main job",
            figure="intervals that hold 1, %",
            promised=f"p above {LEAST_P:g}",
            holds=real.p_value > LEAST_P,
            truth=truth,
            measured=measured,
            off=measured - truth,
            in_points=True,
        ),
    )


def loading_of(plain: Attempt) -> float:
    """Returns the share of loading by plain runs: epochs with the loader, and with batches that are ready."""
    return 1 - geometric_mean(plain.figures["ready_s"]) / geometric_mean(plain.figures["loaded_s"])


def verdict_counts(group: Group) -> dict[str, VerdictCounts]:
    """Counts the verdicts that agree with the truth, in each place in which the script ran."""
    by_case = {case.name: case.attempts for case in group.cases}
    right = bound_of(loading_of(by_case.pop(PLAIN)[0]))
    counts = {}
    for where, attempts in by_case.items():
        bounds = Counter(attempt.answer for attempt in attempts)
        ratios = [attempt.figures["loading_ratio"][0] for attempt in attempts]
        counts[where] = VerdictCounts(
            runs=len(attempts),
            right=bounds[right],
            wrong=len(attempts) - bounds["uncertain"] - bounds[right],
            uncertain=bounds["uncertain"],
            low=min(ratios),
            high=max(ratios),
        )
    return counts


def _verdicts(group: Group) -> tuple[Check, ...]:
    """Judges whether verdicts are right as often, and wrong as seldom, as promised."""
    return tuple(
        Check(
            group=group.name,
            case=where,
            figure="verdicts that are right",
            promised=f"{LEAST_RIGHT_RATIO[where]:.0%} right, {MOST_WRONG_RATIO:.0%} wrong",
            holds=counts.wrong <= MOST_WRONG_RATIO * counts.runs
            and counts.right >= LEAST_RIGHT_RATIO[where] * counts.runs,
            measured=counts.right / counts.runs,
        )
        for where, counts in verdict_counts(group).items()
    )


def _tries(group: Group) -> tuple[Check, ...]:
    """Judges the gate's verdicts on comparisons of known outcome."""
    return tuple(
        Check(
            group=group.name,
            case=case.name,
            figure="verdicts",
            promised=GATE_PARTS[case.name].promised,
            holds=GATE_PARTS[case.name].holds(Counter(attempt.answer for attempt in case.attempts)),
        )
        for case in group.cases
    )


_JUDGES: Mapping[str, Callable[[Group], tuple[Check, ...]]] = {
    "watching": _watching,
    "real": _real,
    "verdicts": _verdicts,
    "tries": _tries,
}
