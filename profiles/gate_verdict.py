"""What a comparison of images/sec came to: a verdict whose error is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from profiles.evidence_of_change import Evidence, Paired
from profiles.looks import Look

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A verdict and what it rests on.

    Attributes:
      ratio: images/sec over what it was compared with, the median; None where nothing was measured.
      interval: of that, with `share` of the error on each side; None as above.
      pairs: that were measured.
      reason: of a verdict that is not about a ratio, else empty.
    """

    verdict: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    share: float | None = None
    pairs: int = 0
    reason: str = ""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        values["interval"] = None if self.interval is None else list(self.interval)
        return {**values, "exit_code": self.exit_code}


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


def decision(evidence: Evidence, look: Look, claims: Claims, *, last: bool) -> Decision | None:
    """Returns what a look came to; None where more pairs are to be measured."""
    verdict = claims.verdict()
    if verdict is None and not last:
        return None
    share = (look.same_share if verdict == SAME else look.alarm_share) or look.same_share
    low, high = evidence.interval(share)
    return Decision(
        verdict=verdict or INCONCLUSIVE,
        ratio=math.exp(evidence.median),
        interval=(math.exp(low), math.exp(high)),
        share=share,
        pairs=look.pairs,
    )


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


def paired(numerators: Sequence[float], denominators: Sequence[float]) -> Paired:
    """Returns the evidence of rates measured in pairs; raises as `log_ratios` does."""
    return Paired(log_ratios(numerators, denominators))
