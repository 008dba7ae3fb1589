"""What a comparison of images/sec came to: a verdict whose error is known.

Whoever looks after every pair and stops at the first "significant" one finds a difference wherever there is noise. The
looks are fixed in advance instead, and the error of each verdict is split over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from profiles.gate.evidence import Evidence, Paired, log_ratios

# Even, so that half of each is the middle; each about 1.6 times the one before. 24 pairs of fresh processes take some
# ten minutes, after which twice the pairs would narrow an interval by no more than a third.
PAIRS = (6, 10, 16, 24)
# Of all looks together, and of each verdict by itself: "regression" where nothing changed, "improved" where nothing
# changed. The design of this project promises at most 1 %.
ALARM_ERROR = 0.01
# "same" where the change is as large as the threshold. 5 %: what tests of equivalence use (Schuirmann 1987).
SAME_ERROR = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look.

    Attributes:
      pairs: measured by then.
      alarm_share: one-sided error that "regression" and "improved" may each spend here; 0 where they cannot be said.
      same_share: what "same" may spend, on each side.
    """

    pairs: int
    alarm_share: float
    same_share: float


def plan(least_p: Callable[[int], float], pairs: Sequence[int] = PAIRS) -> tuple[Look, ...]:
    """Returns the looks, the error split over them.

    By a spending function of Pocock's shape: early looks get about as much as late ones, since it is early that a gate
    saves time. A share that the test cannot reach with so few pairs is not spent there; the next look gets it as well.
    Shares add up to the error at most, so that it is kept whatever ties the looks together (Bonferroni's inequality).

    Args:
      least_p: the smallest p-value that the test can come to with so many pairs.
      pairs: at each look, ascending.
    Source: Lan and DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70 (1983), alpha_2*.
    """
    alarms = _split(ALARM_ERROR, pairs, least_p)
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


IMPROVED, SAME, REGRESSION = "improved", "same", "regression"
INCONCLUSIVE, NOT_COMPARABLE, FAILED = "inconclusive", "not comparable", "failed"
EXIT_CODES = {IMPROVED: 0, SAME: 0, REGRESSION: 1, NOT_COMPARABLE: 3, FAILED: 3, INCONCLUSIVE: 4}
# Losses below it are not worth a red build. 5 %: what the A/A tests of others call noise (Quansight: sd 0.05).
THRESHOLD_RATIO = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What evidence shows at one look, each an array of bool for as many comparisons as the evidence holds."""

    regression: np.ndarray
    improved: np.ndarray
    same: np.ndarray

    def verdict(self) -> str | None:
        """Returns the verdict of a single comparison; None where it is open."""
        for verdict in (REGRESSION, IMPROVED, SAME):
            if bool(getattr(self, verdict)):
                return verdict
        return None


# The figures of a process or a round: images/sec in steady steps, and in whole epochs, edges included. A function that
# does the work and returns how many images that was has no steady steps to tell apart, and the second figure alone.
STEADY, EPOCH = "steady", "epoch"
_WORDS = {STEADY: "steady images/sec", EPOCH: "images/sec with epoch edges"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One figure of a decision.

    Attributes:
      verdict: of this figure alone; "inconclusive" where it is open.
      ratio: images/sec over what it was compared with, the median.
      interval: of that, with `share` of the error on each side.
    """

    verdict: str
    ratio: float
    interval: tuple[float, float]
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A verdict and what it rests on.

    Attributes:
      figures: each figure that was judged, by name; empty where the verdict is not about rates.
      figure: the one that decided; empty as above.
      pairs: that were measured.
      reason: of a verdict that is not about a ratio, else empty.
    """

    verdict: str
    figures: Mapping[str, Judged] = field(default_factory=dict)
    figure: str = ""
    pairs: int = 0
    reason: str = ""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def judged(self) -> Judged | None:
        """The figure that decided."""
        return self.figures.get(self.figure)

    @property
    def words(self) -> str:
        """What the figure that decided is called; a figure that is the only one needs no other name."""
        return _WORDS[self.figure] if len(self.figures) > 1 else "images/sec"

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        for figure in values["figures"].values():
            figure["interval"] = list(figure["interval"])
        return {**values, "exit_code": self.exit_code}


def figures_of(*rates: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of the figures to judge where rates by figure are compared: all that one of them has."""
    return tuple(name for name in (STEADY, EPOCH) if any(name in one for one in rates))


def rate_of(rates: Mapping[str, float], figure: str) -> float:
    """Returns the rate of a figure; where there is no steady one, the whole work's stands for it."""
    return rates.get(figure, rates[EPOCH])


def share_out(look: Look, figures: int) -> Look:
    """Returns a look of one figure among so many.

    "Regression" and "improved" can come from any figure, so that each gets its part of their error (Bonferroni's
    inequality). "Same" must be shown of every figure: wrong is at least the one that changed, at the whole share.
    """
    return replace(look, alarm_share=look.alarm_share / figures)


def change(evidence: Evidence, look: Look, threshold: float) -> Claims:
    """Says where a change is shown, and where it is shown that there is none to speak of.

    Regression: the interval lies below 1, the test says so too, and the median loss exceeds the threshold. Improved is
    its mirror: what is a regression of B against A is an improvement of A against B. Same: the interval lies within the
    threshold on both sides, and tests against both say so too.
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


def floor(evidence: Evidence, look: Look, least_ratio: float) -> Claims:
    """Says where a ratio is shown to be below a floor (regression), or above it (same)."""
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


def together(claims: Sequence[Claims]) -> Claims:
    """Says what the figures of a comparison show together.

    Regression: of any. Same: of all. Improved: of any, where the others improved as well or are the same.
    """
    regression = np.any([one.regression for one in claims], axis=0)
    same = np.all([one.same for one in claims], axis=0)
    shown = np.all([one.improved | one.same for one in claims], axis=0)
    return Claims(regression=regression, improved=shown & ~same & ~regression, same=same & ~regression)


def decision_at(
    evidence: Mapping[str, Evidence], claims: Mapping[str, Claims], look: Look, *, last: bool
) -> Decision | None:
    """Returns what a look came to; None where more pairs are to be measured.

    Args:
      evidence: of each figure.
      claims: what it shows, at its part of the look's error (`share_out`).
    """
    verdict = together(list(claims.values())).verdict()
    if verdict is None and not last:
        return None
    verdict = verdict or INCONCLUSIVE
    own = share_out(look, len(evidence))
    figures = {name: _judged(evidence[name], claims[name].verdict() or INCONCLUSIVE, own) for name in evidence}
    # Of several with the same verdict, the one that lost most.
    deciding = min((name for name in figures if figures[name].verdict == verdict), key=lambda name: figures[name].ratio)
    return Decision(verdict=verdict, figures=figures, figure=deciding, pairs=look.pairs)


def _judged(evidence: Evidence, verdict: str, look: Look) -> Judged:
    share = (look.same_share if verdict == SAME else look.alarm_share) or look.same_share
    low, high = evidence.interval(share)
    return Judged(
        verdict=verdict,
        ratio=math.exp(evidence.median),
        interval=(math.exp(low), math.exp(high)),
        share=share,
    )


def judge(
    evidence: Mapping[str, Evidence], look: Look, ask: Callable[[Evidence, Look], Claims], *, last: bool
) -> Decision | None:
    """Asks each figure at its part of the look's error, and returns what the look came to, as `decision_at` does.

    Args:
      ask: `change` or `floor`, with what is asked for.
    """
    own = share_out(look, len(evidence))
    return decision_at(evidence, {name: ask(one, own) for name, one in evidence.items()}, look, last=last)


def first_decision(looks: Sequence[Look], decide: Callable[[Look, bool], Decision | None]) -> Decision:
    """Looks until a decision is made.

    Args:
      decide: measures up to the look and decides, or says None; the second argument is whether it is the last look, at
        which it must decide.
    """
    for look in looks[:-1]:
        made = decide(look, False)
        if made is not None:
            return made
    made = decide(looks[-1], True)
    assert made is not None
    return made


def paired(numerators: Sequence[Mapping[str, float]], denominators: Sequence[Mapping[str, float]]) -> dict[str, Paired]:
    """Returns the evidence of rates measured in pairs, by figure; raises as `log_ratios` does."""
    return {
        name: Paired(
            log_ratios([rate_of(one, name) for one in numerators], [rate_of(one, name) for one in denominators])
        )
        for name in figures_of(*numerators, *denominators)
    }
