"""Medians and their bootstrap intervals, over the rounds of a measurement; shares and theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy  # its parts are imported when they are first named: `scipy.stats` takes a second

CONFIDENCE = 0.95
_RESAMPLES = 2000


def bootstrap(
    columns: Sequence[Sequence[float]], statistic: Callable[..., np.ndarray], *, paired: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the percentile bootstrap interval (95 %) of a statistic of one or more columns.

    Args:
      columns: raw numbers, one column a window, one number a round; columns may differ in length unless paired.
      statistic: called with the columns and `axis=-1`; returns one number, or several along its first axis.
      paired: resample whole rounds.
    Returns:
      (low, high). Both are the statistic itself where every column holds one number: one round has no spread to show.
    """
    arrays = [np.asarray(column, float) for column in columns]
    if all(len(array) == 1 for array in arrays):
        value = np.asarray(statistic(*arrays, axis=-1))
        return value, value
    # scipy wants two observations at least; a column of one is as certain as a column of the same twice.
    arrays = [np.repeat(array, 2) if len(array) == 1 else array for array in arrays]
    interval = scipy.stats.bootstrap(
        arrays,
        statistic,
        paired=paired,
        method="percentile",
        confidence_level=CONFIDENCE,
        n_resamples=_RESAMPLES,
        rng=np.random.default_rng(0),
    ).confidence_interval
    return np.asarray(interval.low), np.asarray(interval.high)


def median(values: Sequence[float]) -> float:
    return float(np.median(values))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns the 95 % bootstrap interval of the median."""
    low, high = bootstrap([values], np.median)
    return float(low), float(high)


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float]) -> tuple[float, float, float]:
    """Returns the median ratio of rounds measured side by side, and its 95 % bootstrap interval.

    Args:
      numerators, denominators: as many of the one as of the other, round by round, above 0.
    """
    if len(numerators) != len(denominators) or not numerators:
        raise ValueError(
            "Ratios need as many numerators as denominators, at least one. "
            f"Received: {len(numerators)} and {len(denominators)}."
        )
    if min(*numerators, *denominators) <= 0:
        raise ValueError(f"Ratios need numbers above 0. Received: {list(numerators)} and {list(denominators)}.")
    logs = np.log(np.asarray(numerators, float) / np.asarray(denominators, float))
    low, high = median_interval(logs.tolist())
    return float(np.exp(np.median(logs))), float(np.exp(low)), float(np.exp(high))


def share_interval(hits: int, trials: int) -> tuple[float, float]:
    """Returns the 95 % interval of a share that was counted. Source: E. B. Wilson, 1927.

    Raises:
      ValueError: if there are no trials, or more hits than trials.
    """
    if not 0 <= hits <= trials or trials < 1:
        raise ValueError(f"`hits` must be from 0 to `trials`, of at least 1. Received: hits={hits}, trials={trials}.")
    interval = scipy.stats.binomtest(hits, trials).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)
