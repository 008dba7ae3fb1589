"""What log-ratios of rates say of a change, exactly: tests by ranks, and intervals of a median.

Everything takes leading axes, so that thousands of simulated comparisons are one call.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Protocol

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
