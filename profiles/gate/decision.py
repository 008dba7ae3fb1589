"""Decides comparisons of images/sec: verdicts whose probability of error is known.

A comparison that tests after every pair and stops at the first "significant" difference finds one wherever there is
noise. So the looks (the moments of testing) are fixed in advance, and a verdict's allowed error is split over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from unstall.profiles.gate.log_ratios import LogRatios, Paired, log_ratios
from unstall.profiles.gate.verdicts import (
    ALARM_ERROR,
    EPOCH,
    EXIT_CODES,
    IMPROVED,
    INCONCLUSIVE,
    REGRESSION,
    SAME,
    STEADY,
)

# Pairs at each look: even numbers, as the medians in evidence.py need, each about 1.6 times the number before.
PAIRS = (6, 10, 16, 24, 38, 60, 96)
# 24 pairs of fresh processes take some ten minutes; twice as many would narrow an interval by no more than a third.
MOST_PAIRS = 24
# The figures that a comparison can have, `STEADY` and `EPOCH`.
_FIGURES = 2
# The probability of "same" where the change is as large as the threshold: 5 %, as tests of equivalence use
# (Schuirmann 1987).
SAME_ERROR = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One of the moments at which a comparison tests what it has measured.

    Attributes:
      pairs: how many pairs are measured by then.
      alarm_share: the one-sided error that "regression" and "improved" may each spend at this look; 0 where so few
        pairs cannot lead to either.
      same_share: the error that "same" may spend at this look, on each side.
    """

    pairs: int
    alarm_share: float
    same_share: float


def pairs_to(most: float) -> tuple[int, ...]:
    """Returns the numbers of pairs at the looks of a comparison that ends after `most` pairs, at least the first two.

    Six pairs cannot show a regression.
    """
    return tuple(count for count in PAIRS if count <= max(most, PAIRS[1]))


def plan(least_p: Callable[[int], float], pairs: Sequence[int]) -> tuple[Look, ...]:
    """Returns the looks, with the allowed error split over them.

    A spending function of Pocock's shape splits it: early looks get about as much as late ones, since a verdict at an
    early look saves the most time. Where the test cannot reach a share with so few pairs, that look gets none, and the
    next look gets the share as well. The shares add up to the allowed error at most, so that it is kept however the
    looks depend on each other, and whichever look is the last for want of time (Bonferroni's inequality).

    "Regression" and "improved" need as many pairs as coins that show it. A test by ranks reaches smaller p-values, but
    supposes that the new ratios vary as the recorded ratios do: on a machine that has become busy, six of six lie
    below a quiet recording in one of 64 checks of unchanged code.

    Args:
      least_p: returns the smallest p-value that the test of "same" can reach with a number of pairs.
      pairs: how many are measured at each look, ascending; fixed before anything is measured.
    Source: Lan and DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70 (1983), alpha_2*.
    """
    # Each of two figures may spend half of an alarm's share (`share_out`).
    alarms = _split(ALARM_ERROR, pairs, lambda count: _FIGURES * Paired.least_p(count))
    sames = _split(SAME_ERROR, pairs, least_p)
    return tuple(
        Look(pairs=count, alarm_share=alarm, same_share=same)
        for count, alarm, same in zip(pairs, alarms, sames, strict=True)
    )


def _split(error: float, pairs: Sequence[int], least_p: Callable[[int], float]) -> list[float]:
    shares: list[float] = []
    for count in pairs:
        share = error * math.log(1 + (math.e - 1) * count / pairs[-1]) - sum(shares)
        shares.append(share if share >= least_p(count) else 0.0)
    return shares


# A smaller loss does not fail a build. 5 %: the standard deviation that Quansight measured between runs of equal code.
THRESHOLD_RATIO = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What evidence shows at one look: each field is an array of bool, with one value for each comparison in it."""

    regression: np.ndarray
    improved: np.ndarray
    same: np.ndarray

    def verdict(self) -> str | None:
        """Returns the verdict of a single comparison; None where nothing is shown."""
        for verdict in (REGRESSION, IMPROVED, SAME):
            if bool(getattr(self, verdict)):
                return verdict
        return None


_WORDS = {STEADY: "steady images/sec", EPOCH: "images/sec with epoch edges"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFigure:
    """One figure of a decision.

    Attributes:
      verdict: of this figure alone; "inconclusive" where nothing is shown.
      ratio: the median of images/sec over what it was compared with.
      interval: of the ratio, with `share` of the error on each side.
    """

    verdict: str
    ratio: float
    interval: tuple[float, float]
    share: float

    @property
    def confidence(self) -> float:
        """Of the interval."""
        return 1 - 2 * self.share


# What an undecided comparison lacks, by `Lack.cause`: more rounds; a baseline with less noise; anchors that agree; a
# figure less near to what is allowed; a quieter machine; a baseline of this machine, its versions and its data.
ROUNDS, RECORDING, ANCHORS, NEAR, NOISE, ELSEWHERE = "rounds", "recording", "anchors", "near", "noise", "elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """What it would take to decide a comparison.

    Attributes:
      cause: the chief cause of the doubt, such as `ROUNDS`.
      rounds: how many pairs, rounds or processes would decide, in all, if more were like those that were measured; None
        where more would not.
      spread: the standard deviation of one measurement's logarithm; None where nothing was measured.
      recorded_spread: that of one recorded measurement; None without a baseline.
      round_s: how long a round took, in seconds; None where unknown.
      others_ratio: part of the cores' time that other programs took; None where unknown.
    """

    cause: str
    rounds: int | None = None
    spread: float | None = None
    recorded_spread: float | None = None
    round_s: float | None = None
    others_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A verdict, and the figures or the reason that led to it.

    Attributes:
      figures: each figure that was judged, by name; empty where the verdict is not about rates.
      figure: the name of the figure that decided; empty where the verdict is not about rates.
      pairs: how many were measured.
      reason: why, where the verdict is not about a ratio; else empty.
      note: what else changed, which is no evidence; empty where nothing did.
      lack: what it would take to decide, where the verdict is "inconclusive" or "not comparable"; else None.
    """

    verdict: str
    figures: Mapping[str, JudgedFigure] = field(default_factory=dict)
    figure: str = ""
    pairs: int = 0
    reason: str = ""
    note: str = ""
    lack: Lack | None = None

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def judged(self) -> JudgedFigure | None:
        """The figure that decided."""
        return self.figures.get(self.figure)

    @property
    def words(self) -> str:
        """The deciding figure in words: which of the two it is, or "images/sec" where there is only one."""
        return _WORDS[self.figure] if len(self.figures) > 1 else "images/sec"

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        for figure in values["figures"].values():
            figure["interval"] = list(figure["interval"])
        return {**values, "exit_code": self.exit_code}


def figures_of(*rates: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of the figures to judge: those that at least one of these rates by figure has."""
    return tuple(name for name in (STEADY, EPOCH) if any(name in by_figure for by_figure in rates))


def rate_of(rates: Mapping[str, float], figure: str) -> float:
    """Returns the rate of a figure; the rate of whole epochs where there is no steady rate."""
    return rates.get(figure, rates[EPOCH])


def share_out(look: Look, figures: int) -> Look:
    """Returns the look with the error that one of `figures` figures may spend at it.

    One figure is enough for "regression" or "improved", so the figures divide that error among them (Bonferroni's
    inequality). "Same" must be shown of every figure: if one has changed, "same" is wrong only if that very figure's
    test errs, so each may spend the whole share.
    """
    return replace(look, alarm_share=look.alarm_share / figures)


def change(evidence: LogRatios, look: Look, threshold: float) -> Claims:
    """Says of each comparison whether a change is shown, or that there is no change as large as the threshold.

    Regression: the interval lies below 1, the test says so too, and the median loss exceeds the threshold. Improved is
    its mirror: a regression of B against A is an improvement of A against B. Same: the interval lies within the
    threshold on both sides, and a test on each side says so too.
    """
    loss = math.log1p(-threshold)
    some = np.zeros(np.shape(evidence.median), bool)
    regression = improved = some
    if look.alarm_share:
        low, high = evidence.interval(look.alarm_share)
        regression = (high < 0) & (evidence.p_below(0.0) <= look.alarm_share) & (evidence.median < loss)
        improved = (low > 0) & (evidence.p_above(0.0) <= look.alarm_share) & (evidence.median > -loss)
    same = some
    if look.same_share:
        low, high = evidence.interval(look.same_share)
        same = (low > loss) & (high < -loss)
        same &= (evidence.p_above(loss) <= look.same_share) & (evidence.p_below(-loss) <= look.same_share)
    return Claims(regression=regression, improved=improved, same=same & ~regression & ~improved)


def floor(evidence: LogRatios, look: Look, least_ratio: float) -> Claims:
    """Says of each comparison whether its ratio is shown to be below a floor ("regression") or above it ("same")."""
    bound = math.log(least_ratio)
    none = np.zeros(np.shape(evidence.median), bool)
    below = above = none
    if look.alarm_share:
        _, high = evidence.interval(look.alarm_share)
        below = (high < bound) & (evidence.p_below(bound) <= look.alarm_share)
    if look.same_share:
        low, _ = evidence.interval(look.same_share)
        above = (low > bound) & (evidence.p_above(bound) <= look.same_share)
    return Claims(regression=below, improved=none, same=above)


def combine(claims: Sequence[Claims]) -> Claims:
    """Says what the figures of a comparison show together.

    Regression: if any figure regressed. Same: if all are the same. Improved: if some improved and all others are the
    same.
    """
    regression = np.any([figure.regression for figure in claims], axis=0)
    same = np.all([figure.same for figure in claims], axis=0)
    none_worse = np.all([figure.improved | figure.same for figure in claims], axis=0)
    return Claims(regression=regression, improved=none_worse & ~same & ~regression, same=same & ~regression)


def decision_at(
    evidence: Mapping[str, LogRatios], claims: Mapping[str, Claims], look: Look, *, last: bool
) -> Decision | None:
    """Returns the decision at a look; None where more pairs are to be measured.

    Args:
      evidence: of each figure.
      claims: what the evidence of each figure shows at its part of the look's error (`share_out`).
      last: whether this is the last look, at which the decision may be "inconclusive".
    """
    verdict = combine(list(claims.values())).verdict()
    if verdict is None and not last:
        return None
    verdict = verdict or INCONCLUSIVE
    own = share_out(look, len(evidence))
    figures = {name: _judged(evidence[name], claims[name].verdict() or INCONCLUSIVE, own) for name in evidence}
    # Of several figures with the same verdict, the figure that lost most.
    deciding = min((name for name in figures if figures[name].verdict == verdict), key=lambda name: figures[name].ratio)
    return Decision(verdict=verdict, figures=figures, figure=deciding, pairs=look.pairs)


def _judged(evidence: LogRatios, verdict: str, look: Look) -> JudgedFigure:
    share = (look.same_share if verdict == SAME else look.alarm_share) or look.same_share
    low, high = evidence.interval(share)
    return JudgedFigure(
        verdict=verdict,
        ratio=math.exp(evidence.median),
        interval=(math.exp(low), math.exp(high)),
        share=share,
    )


def judge(
    evidence: Mapping[str, LogRatios], look: Look, ask: Callable[[LogRatios, Look], Claims], *, last: bool
) -> Decision | None:
    """Judges each figure at its part of the look's error, and returns the decision of all, as `decision_at` does.

    Args:
      ask: `change` with its threshold, or `floor` with its ratio.
    """
    own = share_out(look, len(evidence))
    claims = {name: ask(of_figure, own) for name, of_figure in evidence.items()}
    return decision_at(evidence, claims, look, last=last)


def first_decision(
    looks: Sequence[Look],
    measure: Callable[[int], None],
    decide: Callable[[Look, bool], Decision | None],
    has_time: Callable[[int], bool],
) -> Decision:
    """Goes from look to look until a decision is made, or the time for the next look is not there.

    Args:
      measure: measures until so many pairs are there.
      decide: decides at a look, or returns None. Its second argument tells whether this is the last look, at which it
        must decide.
      has_time: whether there is time to measure until so many pairs are there.
    """
    for look, following in zip(looks, (*looks[1:], None), strict=True):
        measure(look.pairs)
        decision = decide(look, following is None or not has_time(following.pairs))
        if decision is not None:
            return decision
    raise AssertionError("the last look decides")


def paired(numerators: Sequence[Mapping[str, float]], denominators: Sequence[Mapping[str, float]]) -> dict[str, Paired]:
    """Returns the evidence of rates measured in pairs, by figure; raises as `log_ratios` does."""
    return {
        name: Paired(
            log_ratios([rate_of(rates, name) for rates in numerators], [rate_of(rates, name) for rates in denominators])
        )
        for name in figures_of(*numerators, *denominators)
    }
