"""What a comparison of images/sec came to: a verdict whose error is known.

Whoever looks after every pair and stops at the first "significant" one finds a difference wherever there is noise. The
looks are fixed in advance instead, and the error of each verdict is split over them. What log-ratios say of a change
is exact: tests by ranks, and intervals of a median. Everything takes leading axes, so that thousands of simulated
comparisons are one call.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import scipy  # its parts are imported when they are first named: `scipy.stats` takes a second

# Of two probabilities that are the same, one may come out this much larger.
_ROUNDING = 1e-12


class Evidence(Protocol):
    """Log-ratios of what is judged over what it is judged by."""

    @property
    def median(self) -> np.ndarray: ...

    def p_below(self, bound: float) -> np.ndarray:
        """Returns the p-value of "not below `bound`": small where the log-ratio is below it."""

    def p_above(self, bound: float) -> np.ndarray:
        """Returns the p-value of "not above `bound`"."""

    def interval(self, share: float) -> tuple[np.ndarray, np.ndarray]:
        """Returns the bootstrap interval of the median, with `share` of the error on each side."""


class Paired:
    """Log-ratios of pairs that were measured side by side, in an order that a coin decided.

    Args:
      logs: (..., pairs), an even number of pairs.
    """

    def __init__(self, logs: np.ndarray) -> None:
        self._logs = np.asarray(logs, float)
        _check(self._logs, "logs")

    @staticmethod
    def least_p(pairs: int) -> float:
        """Returns the smallest p-value that the sign flips of so many pairs can come to."""
        return 2.0**-pairs

    @property
    def median(self) -> np.ndarray:
        return np.median(self._logs, axis=-1)

    def p_below(self, bound: float) -> np.ndarray:
        """Tests by flipping signs: Wilcoxon's signed ranks, over all 2^pairs flips.

        Had A and B been the same, each log-ratio would have come out with the other sign if the coin had fallen
        otherwise, whatever the machine did meanwhile. Ranks, so that one pair that went wild has no more weight than
        any other. Of ties the worst is supposed.

        Source: Wilcoxon, "Individual comparisons by ranking methods", 1945; the sum of ranks as the number of means of
        two above 0: Tukey 1949.
        """
        # Counted, not ranked: the ranks of what is above sum to the number of pairs, each with itself as well, whose
        # mean is above.
        first, second = np.triu_indices(self._logs.shape[-1])
        shifted = self._logs - bound
        above = (shifted[..., first] + shifted[..., second] >= 0).sum(axis=-1)
        return _rank_sums(self._logs.shape[-1])[above]

    def p_above(self, bound: float) -> np.ndarray:
        return Paired(-self._logs).p_below(-bound)

    def interval(self, share: float) -> tuple[np.ndarray, np.ndarray]:
        """The median of bootstrap samples without drawing any: its distribution is known."""
        return _percentiles(*_medians(self._logs), share)


class Unpaired:
    """Log-ratios to an anchor, of now and of then.

    Args:
      now: (..., count), an even number.
      then: (..., count), an even number.
    """

    def __init__(self, now: np.ndarray, then: np.ndarray) -> None:
        self._now, self._then = np.asarray(now, float), np.asarray(then, float)
        _check(self._now, "now")
        _check(self._then, "then")

    @staticmethod
    def least_p(now: int, then: int) -> float:
        """Returns the smallest p-value that ranks of so many can come to."""
        return 1 / math.comb(now + then, now)

    @property
    def median(self) -> np.ndarray:
        return np.median(self._now, axis=-1) - np.median(self._then, axis=-1)

    def p_below(self, bound: float) -> np.ndarray:
        """Tests by ranks: Mann and Whitney's U, exactly."""
        return np.asarray(
            scipy.stats.mannwhitneyu(self._now - bound, self._then, alternative="less", method="exact", axis=-1).pvalue
        )

    def p_above(self, bound: float) -> np.ndarray:
        return Unpaired(-self._now, -self._then).p_below(-bound)

    def interval(self, share: float) -> tuple[np.ndarray, np.ndarray]:
        """The difference of the medians of two independent bootstrap samples."""
        now, now_weights = _medians(self._now)
        then, then_weights = _medians(self._then)
        values = now[..., :, None] - then[..., None, :]
        weights = now_weights[:, None] * then_weights[None, :]
        return _percentiles(values.reshape(*values.shape[:-2], -1), weights.reshape(-1), share)


def _check(logs: np.ndarray, name: str) -> None:
    count = logs.shape[-1] if logs.ndim else 0
    if count < 2 or count % 2 or not np.isfinite(logs).all():
        raise ValueError(
            f"`{name}` must be an even number of finite log-ratios, at least 2. Received: {count}"
            + ("." if np.isfinite(logs).all() else ", not all finite.")
        )


@functools.cache
def _rank_sums(pairs: int) -> np.ndarray:
    """Returns the probability that the ranks of what is above sum to so much or less, where signs are coins."""
    flips = np.ones(1)
    for rank in range(1, pairs + 1):
        with_it = np.zeros(len(flips) + rank)
        with_it[: len(flips)] += flips
        with_it[rank:] += flips
        flips = with_it
    return np.cumsum(flips) / 2.0**pairs


def _medians(logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns every median that a bootstrap sample can have, and how probable each is."""
    count = logs.shape[-1]
    ordered = np.sort(logs, axis=-1)
    first, second = np.triu_indices(count)
    return (ordered[..., first] + ordered[..., second]) / 2, _median_weights(count)


@functools.cache
def _median_weights(count: int) -> np.ndarray:
    """Returns the probability that the middle two of a bootstrap sample are the i-th and the j-th of the data, i <= j.

    Half of the sample is at most the i-th with one that is it, the other half at least the j-th with one that is it.
    Source: Efron, "Bootstrap methods: another look at the jackknife", 1979, section 3, for the odd case.
    """
    half = count // 2
    first, second = (index + 1 for index in np.triu_indices(count))
    below = (first / count) ** half - ((first - 1) / count) ** half
    above = ((count - second + 1) / count) ** half - ((count - second) / count) ** half
    weights = np.where(first < second, math.comb(count, half) * below * above, 0.0)
    # Both the same: what is left of the probability that the lower of the two is the i-th.
    place = np.arange(1, count + 1)
    lower = scipy.stats.binom.sf(half - 1, count, place / count) - scipy.stats.binom.sf(
        half - 1, count, (place - 1) / count
    )
    weights[first == second] = lower - np.bincount(first - 1, weights=weights, minlength=count)
    return weights


def _percentiles(values: np.ndarray, weights: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    reached = np.cumsum(weights[order], axis=-1)
    low = (reached >= share - _ROUNDING).argmax(axis=-1)
    high = (reached >= 1 - share - _ROUNDING).argmax(axis=-1)
    return tuple(np.take_along_axis(ordered, at[..., None], axis=-1)[..., 0] for at in (low, high))  # type: ignore[return-value]


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


def check_rates(rates: Iterable[float]) -> None:
    """Refuses what is no rate.

    Raises:
      ValueError: at anything that is not a number above 0.
    """
    for rate in rates:
        if not (math.isfinite(rate) and rate > 0):
            raise ValueError(f"A rate must be a number above 0. Received: {rate}.")


def log_ratios(numerators: Sequence[float], denominators: Sequence[float]) -> np.ndarray:
    """Returns the logarithms of ratios of rates.

    Raises:
      ValueError: at a rate that is not a number above 0.
    """
    check_rates(numerators)
    check_rates(denominators)
    return np.log(np.asarray(numerators, float) / np.asarray(denominators, float))


def paired(numerators: Sequence[Mapping[str, float]], denominators: Sequence[Mapping[str, float]]) -> dict[str, Paired]:
    """Returns the evidence of rates measured in pairs, by figure; raises as `log_ratios` does."""
    return {
        name: Paired(
            log_ratios([rate_of(one, name) for one in numerators], [rate_of(one, name) for one in denominators])
        )
        for name in figures_of(*numerators, *denominators)
    }
