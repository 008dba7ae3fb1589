"""What log-ratios of rates show of a change: exact tests by ranks, and intervals of the median.

The last axis holds the log-ratios of one comparison. Arrays may have more axes in front of it, so that thousands of
simulated comparisons are one call.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import scipy  # its parts are imported when they are first named: `scipy.stats` takes a second

# By rounding, one of two equal probabilities may be computed this much larger than the other.
_ROUNDING = 1e-12


class LogRatios(Protocol):
    """Log-ratios of the rate under test over the rate that it is compared with."""

    @property
    def median(self) -> np.ndarray: ...

    def p_below(self, bound: float) -> np.ndarray:
        """Returns the p-value of "not below `bound`": small where the log-ratio is below it."""

    def p_above(self, bound: float) -> np.ndarray:
        """Returns the p-value of "not above `bound`"."""

    def interval(self, share: float) -> tuple[np.ndarray, np.ndarray]:
        """Returns the bootstrap interval of the median, with `share` of the error on each side."""

    def with_more(self, count: int) -> LogRatios:
        """Returns what `count` new log-ratios would show that have the quantiles of these."""

    def moved(self, by: float) -> LogRatios:
        """Returns what the same noise would show around a median that differs by this."""

    @property
    def spread(self) -> float:
        """The standard deviation of one new measurement's logarithm."""


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
        """Returns the smallest p-value that flipping the signs of so many pairs can reach."""
        return 2.0**-pairs

    @property
    def median(self) -> np.ndarray:
        return np.median(self._logs, axis=-1)

    def p_below(self, bound: float) -> np.ndarray:
        """Tests by flipping signs: Wilcoxon's signed ranks, over all 2^pairs flips.

        If A and B are equal, then the coin that decided which of them came first decided the sign of each log-ratio,
        whatever the machine did meanwhile. Ranks give an outlying pair no more weight than any other pair. Ties count
        against the claim.

        Source: Wilcoxon, "Individual comparisons by ranking methods", 1945; the sum of ranks as the number of means of
        two above 0: Tukey 1949.
        """
        # Counts instead of ranking: the ranks of the values above the bound sum to the number of pairs of values (each
        # also paired with itself) whose mean is above the bound.
        first, second = np.triu_indices(self._logs.shape[-1])
        shifted = self._logs - bound
        above = (shifted[..., first] + shifted[..., second] >= 0).sum(axis=-1)
        return _rank_sums(self._logs.shape[-1])[above]

    def p_above(self, bound: float) -> np.ndarray:
        return Paired(-self._logs).p_below(-bound)

    def interval(self, share: float) -> tuple[np.ndarray, np.ndarray]:
        """Computes the interval from the exact distribution of a bootstrap sample's median; no sample is drawn."""
        return _percentiles(*_medians(self._logs), share)

    def with_more(self, count: int) -> Paired:
        return Paired(_as_many(self._logs, count))

    def moved(self, by: float) -> Paired:
        return Paired(self._logs + by)

    @property
    def spread(self) -> float:
        return deviation(self._logs) / math.sqrt(2)  # a ratio has the noise of two measurements


class Unpaired:
    """Log-ratios to an anchor: of a new measurement, and of the recorded one.

    Args:
      now: of the new measurement, (..., count), an even number.
      then: of the recorded one, (..., count), an even number.
    """

    def __init__(self, now: np.ndarray, then: np.ndarray) -> None:
        self._now, self._then = np.asarray(now, float), np.asarray(then, float)
        _check(self._now, "now")
        _check(self._then, "then")

    @staticmethod
    def least_p(now: int, then: int) -> float:
        """Returns the smallest p-value that the test by ranks can reach with so many values on each side."""
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
        """Computes the interval from the exact distribution of the difference of two bootstrap samples' medians."""
        now, now_weights = _medians(self._now)
        then, then_weights = _medians(self._then)
        values = now[..., :, None] - then[..., None, :]
        weights = now_weights[:, None] * then_weights[None, :]
        return _percentiles(values.reshape(*values.shape[:-2], -1), weights.reshape(-1), share)

    def with_more(self, count: int) -> Unpaired:
        return Unpaired(_as_many(self._now, count), self._then)

    def moved(self, by: float) -> Unpaired:
        return Unpaired(self._now + by, self._then)

    @property
    def spread(self) -> float:
        return deviation(self._now)

    @property
    def recorded_spread(self) -> float:
        """The standard deviation of one recorded measurement's logarithm."""
        return deviation(self._then)

    def recording_limits(self, count: int) -> bool:
        """Says whether, after `count` new log-ratios, the recorded ones would leave more doubt than the new ones."""
        return self.recorded_spread / math.sqrt(len(self._then)) > self.spread / math.sqrt(count)


def _as_many(logs: np.ndarray, count: int) -> np.ndarray:
    """Returns `count` values with the quantiles of `logs`, and so with the same median (Hazen's positions)."""
    return np.quantile(logs, (np.arange(count) + 0.5) / count, method="hazen")


def deviation(logs: np.ndarray | Sequence[float]) -> float:
    """Estimates the standard deviation of Gaussian noise by the median deviation, on which outliers have little effect.

    Source: for Gaussian noise the standard deviation is 1.4826 times the median deviation.
    """
    return 1.4826 * float(np.median(np.abs(np.asarray(logs) - np.median(logs))))


def _check(logs: np.ndarray, name: str) -> None:
    count = logs.shape[-1] if logs.ndim else 0
    if count < 2 or count % 2 or not np.isfinite(logs).all():
        raise ValueError(
            f"`{name}` must be an even number of finite log-ratios, at least 2. Received: {count}"
            + ("." if np.isfinite(logs).all() else ", not all finite.")
        )


@functools.cache
def _rank_sums(pairs: int) -> np.ndarray:
    """Returns, for each sum s, the probability that the ranks of positive values add up to s or less.

    Each value is positive with the probability 1/2, as if a coin decided.
    """
    flips = np.ones(1)
    for rank in range(1, pairs + 1):
        with_rank = np.zeros(len(flips) + rank)
        with_rank[: len(flips)] += flips
        with_rank[rank:] += flips
        flips = with_rank
    return np.cumsum(flips) / 2.0**pairs


def _medians(logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns every median that a bootstrap sample can have, and the probability of each."""
    count = logs.shape[-1]
    ordered = np.sort(logs, axis=-1)
    first, second = np.triu_indices(count)
    return (ordered[..., first] + ordered[..., second]) / 2, _median_weights(count)


@functools.cache
def _median_weights(count: int) -> np.ndarray:
    """Returns the probability that the middle two of a bootstrap sample are the i-th and the j-th of the data, i <= j.

    This is so where the lower half of the sample has the i-th as its largest value, and the upper half the j-th as its
    smallest.
    Source: Efron, "Bootstrap methods: another look at the jackknife", 1979, section 3, for the odd case.
    """
    half = count // 2
    first, second = (index + 1 for index in np.triu_indices(count))
    below = (first / count) ** half - ((first - 1) / count) ** half
    above = ((count - second + 1) / count) ** half - ((count - second) / count) ** half
    weights = np.where(first < second, math.comb(count, half) * below * above, 0.0)
    # i = j: the probability that the lower of the two is the i-th, less that of all pairs with i < j.
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
    """Refuses values that are no rates.

    Raises:
      ValueError: at a value that is not a number above 0.
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
