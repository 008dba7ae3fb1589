"""How often 95 % intervals of ratios hold the truth: simulated, and of intervals that were measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # `scipy.stats` takes a second to import: it is imported when it is first used

from unstall.benchmarks.truth.samples import Figure
from unstall.profiles.statistics import CONFIDENCE, LEAST_ROUNDS

ROUNDS = (*range(LEAST_ROUNDS, 11), 12, 15)
# As many subjects are compared in a round as a usual run has variants.
_SUBJECTS = 4


def coverage(noise: Callable[[np.random.Generator, int], np.ndarray], rounds: int, simulations: int) -> float:
    """Returns the part of intervals that hold the truth, of the ratio of two subjects among several.

    Args:
      noise: of the logarithms of the rates, in the order of measuring.
    """
    rng = np.random.default_rng(rounds)
    subjects = _SUBJECTS if rounds * _SUBJECTS <= noise(rng, 1).shape[1] else 3
    in_turn = noise(rng, simulations)[:, : rounds * subjects].reshape(simulations, rounds, subjects)
    # The order is drawn anew in each round: the first two of a permutation are two of the subjects.
    order = rng.permuted(np.tile(np.arange(subjects), (simulations, rounds, 1)), axis=2)
    drawn = np.take_along_axis(in_turn, order, axis=2)
    return covered(drawn[:, :, 0] - drawn[:, :, 1])


def covered(logs: np.ndarray) -> float:
    """Returns the part of the intervals that hold 0: of log ratios (intervals, rounds) of things that are the same."""
    return float((np.abs(logs.mean(axis=1)) <= half_widths(logs)).mean())


def half_widths(logs: np.ndarray) -> np.ndarray:
    """Returns those of the intervals of `profiles.statistics.ratio_interval`, for many at once: in logarithms."""
    rounds = logs.shape[1]
    return scipy.stats.t.ppf((1 + CONFIDENCE) / 2, rounds - 1) * logs.std(axis=1, ddof=1) / math.sqrt(rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RealIntervals:
    """Intervals of a ratio whose truth is 1.

    Attributes:
      held: how many of them hold 1.
      rounds: of each interval.
      p_value: the chance of so many or so few, if as many hold 1 as is written.
      half_width: the median, in logarithms.
    """

    held: int
    intervals: int
    rounds: int
    p_value: float
    half_width: float


def real_intervals(figures: Sequence[Figure]) -> RealIntervals:
    """Counts the intervals that hold the truth: one of each figure, all of the same number of rounds."""
    logs = np.log([np.divide(figure.truth, figure.measured) for figure in figures])
    held = round(covered(logs) * len(logs))
    return RealIntervals(
        held=held,
        intervals=len(logs),
        rounds=logs.shape[1],
        p_value=float(scipy.stats.binomtest(held, len(logs), CONFIDENCE).pvalue),
        half_width=float(np.median(half_widths(logs))),
    )
