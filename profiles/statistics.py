"""Means of rates and ratios over the rounds of a measurement, and 95 % intervals of ratios, medians and shares.

Rates and ratios are averaged by the geometric mean: then the ratio of two means is the mean of the ratios, and the
figures of one row agree. Intervals of ratios are Student's, on logarithms. They compare rounds that were measured side
by side, in an order drawn anew for each round: only then do they hold the truth as often as they promise
(docs/measurement.md). A single rate has no interval: successive rounds resemble each other, so that any interval of
theirs would be too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import scipy  # `scipy.stats` takes a second to import: it is imported when it is first used

CONFIDENCE = 0.95
# With fewer rounds an interval would be too wide to learn anything from.
LEAST_ROUNDS = 3
_RESAMPLES = 2000

Interval = tuple[float, float]
# Values by name, one for each round. All values of a mapping come from the same rounds.
Columns = Mapping[str, Sequence[float]]


def median(values: Sequence[float]) -> float:
    return float(np.median(values))


def median_interval(values: Sequence[float]) -> Interval:
    """Returns the 95 % bootstrap interval of the median of many independent values."""
    if len(values) == 1:
        return values[0], values[0]
    interval = scipy.stats.bootstrap(
        [values],
        np.median,
        method="percentile",
        confidence_level=CONFIDENCE,
        n_resamples=_RESAMPLES,
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def geometric_interval(values: Sequence[float]) -> Interval | None:
    """Returns the 95 % interval of the geometric mean; None for fewer values than `LEAST_ROUNDS`."""
    interval = t_interval(list(map(math.log, values)))
    return None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def spread_ratio(values: Sequence[float]) -> float | None:
    """Returns the relative standard deviation of the values of rounds; None for fewer than `LEAST_ROUNDS`."""
    return float(np.std(np.log(values), ddof=1)) if len(values) >= LEAST_ROUNDS else None


def by_shared_rounds(rates: Mapping[int, float], others: Mapping[int, float]) -> tuple[list[float], list[float]]:
    """Returns the two rates of each round that is in both mappings, by the number of the round."""
    shared = sorted(rates.keys() & others.keys())
    return [rates[number] for number in shared], [others[number] for number in shared]


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float]) -> tuple[float, Interval | None]:
    """Returns the geometric mean of the ratios of rounds measured side by side, and its 95 % interval.

    Args:
      numerators, denominators: one value of each for every round, above 0.
    Returns:
      (ratio, interval); the interval is None for fewer than `LEAST_ROUNDS`.
    Raises:
      ValueError: if their numbers differ, there are none, or a value is not above 0.
    """
    logs = _log_ratios(numerators, denominators)
    log_interval = t_interval(logs)
    interval = None if log_interval is None else (math.exp(log_interval[0]), math.exp(log_interval[1]))
    return math.exp(math.fsum(logs) / len(logs)), interval


def shared_ratio(rates: Mapping[int, float], others: Mapping[int, float]) -> tuple[float | None, Interval | None]:
    """Returns `ratio_interval` over the rounds that are in both mappings; (None, None) if there are none."""
    return ratio_interval(*by_shared_rounds(rates, others)) if rates.keys() & others.keys() else (None, None)


def unpaired_ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float]
) -> tuple[float, Interval | None]:
    """Returns the ratio of the geometric means of rounds that were not measured side by side, and its 95 % interval.

    Args:
      numerators, denominators: above 0; their numbers may differ.
    Returns:
      (ratio, interval); the interval is None where either has fewer than `LEAST_ROUNDS`.
    Source: B. L. Welch, 1947, on logarithms.
    """
    groups = [{"numerator": [*map(math.log, numerators)]}, {"denominator": [*map(math.log, denominators)]}]
    log_ratio, bounds = delta_interval(lambda means: np.array([means["numerator"] - means["denominator"]]), groups)
    interval = None if bounds is None else (math.exp(bounds[0][0]), math.exp(bounds[1][0]))
    return math.exp(log_ratio[0]), interval


def t_interval(values: Sequence[float]) -> Interval | None:
    """Returns the 95 % interval of the mean; None for fewer than `LEAST_ROUNDS`."""
    _, bounds = delta_interval(lambda means: np.array([means["value"]]), [{"value": values}])
    return None if bounds is None else (float(bounds[0][0]), float(bounds[1][0]))


def significantly_above(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[bool, ...]:
    """Returns for each pair whether its numerators are significantly above its denominators.

    Args:
      pairs: (numerators, denominators), as `ratio_interval` takes them.
    Returns:
      One answer for each pair, in the same order. The chance that any of them is wrong is 5 % at most, however many
      pairs are compared.
    Source: S. Holm, 1979.
    """
    p_values = [_p_value(_log_ratios(*pair)) for pair in pairs]
    above = [False] * len(pairs)
    for rank, at in enumerate(sorted(range(len(pairs)), key=lambda at: p_values[at])):
        if p_values[at] > (1 - CONFIDENCE) / (len(pairs) - rank):
            break
        above[at] = geometric_mean(pairs[at][0]) > geometric_mean(pairs[at][1])
    return tuple(above)


def _log_ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    if len(numerators) != len(denominators) or not numerators:
        raise ValueError(
            "Ratios need as many numerators as denominators, at least one. "
            f"Received: {len(numerators)} and {len(denominators)}."
        )
    if min(*numerators, *denominators) <= 0:
        raise ValueError(f"Ratios need numbers above 0. Received: {list(numerators)} and {list(denominators)}.")
    return [math.log(numerator / denominator) for numerator, denominator in zip(numerators, denominators, strict=True)]


def _p_value(logs: Sequence[float]) -> float:
    """Returns the two-sided p-value of the mean being 0, by Student's t-test; 1 for too few rounds."""
    if len(logs) < LEAST_ROUNDS:
        return 1.0
    if len(set(logs)) == 1:
        return 0.0 if logs[0] else 1.0
    return float(scipy.stats.ttest_1samp(logs, 0).pvalue)


def delta_interval(
    statistic: Callable[[dict[str, float]], np.ndarray], groups: Sequence[Columns]
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """Returns a statistic of the means of columns, and its 95 % interval, by the delta method and Student's t.

    Args:
      statistic: takes the mean of every column, by its name; returns an array of shape (numbers,).
      groups: the columns of a group were measured in the same rounds. No two columns have the same name.
    Returns:
      (numbers, (low, high)), each of shape (numbers,); None for the interval where a group has fewer than
      `LEAST_ROUNDS` rounds.
    Source: the delta method, round by round, so that disturbances that all windows of a round share cancel out; degrees
      of freedom of several groups by F. E. Satterthwaite, 1946.
    """
    means = {name: float(np.mean(values)) for group in groups for name, values in group.items()}
    middle = statistic(means)
    rounds = [len(next(iter(group.values()))) for group in groups]
    if min(rounds) < LEAST_ROUNDS:
        return middle, None
    variances, freedoms = [], []
    for group, count in zip(groups, rounds, strict=True):
        changes = np.zeros((count, len(middle)))
        for name, values in group.items():
            deviations = np.asarray(values, float) - means[name]
            step = float(np.std(deviations)) * 1e-3 or 1e-9
            slope = (statistic(means | {name: means[name] + step}) - statistic(means | {name: means[name] - step})) / (
                2 * step
            )
            changes += np.outer(deviations, slope)
        variances.append(np.sum(changes**2, axis=0) / (count - 1) / count)
        freedoms.append(count - 1)
    total = np.sum(variances, axis=0)
    squares = np.sum([variance**2 / freedom for variance, freedom in zip(variances, freedoms, strict=True)], axis=0)
    freedom = np.divide(total**2, squares, out=np.full_like(total, min(freedoms)), where=squares > 0)
    half = scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * np.sqrt(total)
    return middle, (middle - half, middle + half)


def range_text(interval: Interval | None, digits: int = 2) -> str:
    return "no interval" if interval is None else f"{interval[0]:.{digits}f} to {interval[1]:.{digits}f}"


def range_cell(interval: Interval | None) -> str:
    """Returns an interval as the text of a narrow table cell."""
    return "-" if interval is None else f"{interval[0]:.2f}-{interval[1]:.2f}"


def share_interval(hits: int, trials: int) -> Interval:
    """Returns the 95 % interval of the share of hits in trials.

    Raises:
      ValueError: if there are no trials, or more hits than trials.
    Source: E. B. Wilson, 1927.
    """
    if not 0 <= hits <= trials or trials < 1:
        raise ValueError(f"`hits` must be from 0 to `trials`, of at least 1. Received: hits={hits}, trials={trials}.")
    interval = scipy.stats.binomtest(hits, trials).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def falls(values: Sequence[float]) -> float:
    """Returns the p-value of values in their order falling by accident.

    Source: Kendall's test of tau, one-sided (`scipy.stats.kendalltau`).
    """
    return float(scipy.stats.kendalltau(range(len(values)), values, alternative="less").pvalue)


def slope(places: Sequence[float], values: Sequence[float]) -> tuple[float, Interval]:
    """Returns (by how much values grow from one place to the next, its 95 % interval).

    Source: the estimate of Theil and Sen, which a few far values do not move (`scipy.stats.theilslopes`).
    """
    found = scipy.stats.theilslopes(values, places, alpha=CONFIDENCE)
    return float(found.slope), (float(found.low_slope), float(found.high_slope))
