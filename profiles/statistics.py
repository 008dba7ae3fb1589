"""Geometric means and their intervals, over the rounds of a measurement; medians; shares that were counted.

Rates and ratios are averaged by the geometric mean, everywhere: then the ratio of two means is the mean of the ratios,
so that the figures of one row agree. An interval is Student's, of logarithms, and of rounds that were measured side by
side in an order drawn anew each time: so its coverage is what it says (docs/measurement.md). The rate of one thing by
itself has none: rounds that follow each other are alike, and any interval would be too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import scipy  # its parts are imported when they are first named: `scipy.stats` takes a second

CONFIDENCE = 0.95
# Rounds below which no interval is given: it would be wider than anything that could be learned from it.
LEAST_ROUNDS = 3
_RESAMPLES = 2000

Interval = tuple[float, float]
# Numbers by name, one a round; those of one mapping were measured in the same rounds.
Columns = Mapping[str, Sequence[float]]


def median(values: Sequence[float]) -> float:
    return float(np.median(values))


def median_interval(values: Sequence[float]) -> Interval:
    """Returns the 95 % bootstrap interval of the median; for many values, of which each stands by itself."""
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


def spread_ratio(values: Sequence[float]) -> float | None:
    """Returns the standard deviation of one round's value, as a part of it; None for fewer than `LEAST_ROUNDS`."""
    return float(np.std(np.log(values), ddof=1)) if len(values) >= LEAST_ROUNDS else None


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float]) -> tuple[float, Interval | None]:
    """Returns the geometric mean of the ratios of rounds measured side by side, and its 95 % interval.

    Args:
      numerators, denominators: as many of the one as of the other, round by round, above 0.
    Returns:
      (ratio, interval); no interval of fewer than `LEAST_ROUNDS`.
    Raises:
      ValueError: if the numbers are not of that kind.
    """
    logs = _log_ratios(numerators, denominators)
    interval = t_interval(logs)
    between = None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))
    return math.exp(math.fsum(logs) / len(logs)), between


def unpaired_ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float]
) -> tuple[float, Interval | None]:
    """Returns the ratio of the geometric means of rounds that were not measured side by side, and its 95 % interval.

    Args:
      numerators, denominators: above 0, of any two numbers of rounds.
    Returns:
      (ratio, interval); no interval where either has fewer than `LEAST_ROUNDS`.
    Source: B. L. Welch, 1947, on logarithms.
    """
    groups = [{"numerator": [*map(math.log, numerators)]}, {"denominator": [*map(math.log, denominators)]}]
    middle, interval = delta_interval(lambda means: np.array([means["numerator"] - means["denominator"]]), groups)
    between = None if interval is None else (math.exp(interval[0][0]), math.exp(interval[1][0]))
    return math.exp(middle[0]), between


def t_interval(values: Sequence[float]) -> Interval | None:
    """Returns the 95 % interval of the mean; None of fewer than `LEAST_ROUNDS`."""
    _, interval = delta_interval(lambda means: np.array([means["value"]]), [{"value": values}])
    return None if interval is None else (float(interval[0][0]), float(interval[1][0]))


def significantly_above(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[bool, ...]:
    """Returns which numerators are significantly above their denominators, where as many were compared.

    Args:
      pairs: (numerators, denominators), as `ratio_interval` takes them.
    Returns:
      One a pair, in the same order: the chance that any is wrong is 5 %. Source: S. Holm, 1979.
    """
    p_values = [_p_value(_log_ratios(*pair)) for pair in pairs]
    found = [False] * len(pairs)
    for rank, at in enumerate(sorted(range(len(pairs)), key=lambda at: p_values[at])):
        if p_values[at] > (1 - CONFIDENCE) / (len(pairs) - rank):
            break
        found[at] = geometric_mean(pairs[at][0]) > geometric_mean(pairs[at][1])
    return tuple(found)


def _log_ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    if len(numerators) != len(denominators) or not numerators:
        raise ValueError(
            "Ratios need as many numerators as denominators, at least one. "
            f"Received: {len(numerators)} and {len(denominators)}."
        )
    if min(*numerators, *denominators) <= 0:
        raise ValueError(f"Ratios need numbers above 0. Received: {list(numerators)} and {list(denominators)}.")
    return [math.log(ours / theirs) for ours, theirs in zip(numerators, denominators, strict=True)]


def _p_value(logs: Sequence[float]) -> float:
    """Returns how probable a mean so far from 0 is by chance, on either side; 1 for too few rounds."""
    if len(logs) < LEAST_ROUNDS:
        return 1.0
    error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    away = abs(float(np.mean(logs)))
    if error == 0:
        return 0.0 if away else 1.0
    return 2 * float(scipy.stats.t.sf(away / error, len(logs) - 1))


def delta_interval(
    statistic: Callable[[dict[str, float]], np.ndarray], groups: Sequence[Columns]
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """Returns a statistic of the means of columns, and its 95 % interval, by the delta method and Student's t.

    Args:
      statistic: called with the mean of every column by its name; returns some numbers.
      groups: columns that were measured in the same rounds; names differ between all groups.
    Returns:
      (numbers, (low, high)); no interval where a group has fewer than `LEAST_ROUNDS` rounds.
    Source: the delta method, round by round, so that what the windows of a round have in common cancels; degrees of
      freedom of several groups by F. E. Satterthwaite, 1946.
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
            away = np.asarray(values, float) - means[name]
            step = float(np.std(away)) * 1e-3 or 1e-9
            slope = (statistic(means | {name: means[name] + step}) - statistic(means | {name: means[name] - step})) / (
                2 * step
            )
            changes += np.outer(away, slope)
        variances.append(np.sum(changes**2, axis=0) / (count - 1) / count)
        freedoms.append(count - 1)
    total = np.sum(variances, axis=0)
    squares = np.sum([one**2 / freedom for one, freedom in zip(variances, freedoms, strict=True)], axis=0)
    freedom = np.divide(total**2, squares, out=np.full_like(total, min(freedoms)), where=squares > 0)
    half = scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * np.sqrt(total)
    return middle, (middle - half, middle + half)


def range_text(interval: Interval | None, digits: int = 2) -> str:
    return "no interval" if interval is None else f"{interval[0]:.{digits}f} to {interval[1]:.{digits}f}"


def range_cell(interval: Interval | None) -> str:
    """Returns it as a narrow cell of a table."""
    return "-" if interval is None else f"{interval[0]:.2f}-{interval[1]:.2f}"


def share_interval(hits: int, trials: int) -> Interval:
    """Returns the 95 % interval of a share that was counted. Source: E. B. Wilson, 1927.

    Raises:
      ValueError: if there are no trials, or more hits than trials.
    """
    if not 0 <= hits <= trials or trials < 1:
        raise ValueError(f"`hits` must be from 0 to `trials`, of at least 1. Received: hits={hits}, trials={trials}.")
    interval = scipy.stats.binomtest(hits, trials).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)
