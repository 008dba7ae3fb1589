"""Simulated comparisons: how often the gate raises a false alarm, and how often it finds a loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from unstall.profiles.gate.decision import MOST_PAIRS, THRESHOLD_RATIO, change, combine, pairs_to, plan, share_out
from unstall.profiles.gate.log_ratios import Paired
from unstall.profiles.gate.verdicts import INCONCLUSIVE, SAME

# Those of a comparison unless asked otherwise.
PAIRS = pairs_to(MOST_PAIRS)
# Two measurements a pair.
_MEASUREMENTS = 2 * PAIRS[-1]


def _gaussian(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.normal(size=(count, _MEASUREMENTS))


def _heavy_tailed(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.standard_t(3, size=(count, _MEASUREMENTS)) / math.sqrt(3)


def _drifting(rng: np.random.Generator, count: int) -> np.ndarray:
    """Returns the noise of a machine that gets slower or faster all the time, by some standard deviations in all."""
    slopes = 5 * rng.normal(size=(count, 1))
    return _gaussian(rng, count) + slopes * np.linspace(0, 1, _MEASUREMENTS)


def _autocorrelated(rng: np.random.Generator, count: int, memory: float = 0.5) -> np.ndarray:
    """Returns noise in which a measurement resembles the one before it, as where another program stays for a while."""
    fresh = _gaussian(rng, count)
    noise = np.empty_like(fresh)
    noise[:, 0] = fresh[:, 0]
    for at in range(1, _MEASUREMENTS):
        noise[:, at] = memory * noise[:, at - 1] + math.sqrt(1 - memory**2) * fresh[:, at]
    return noise


def _rhythmic(rng: np.random.Generator, count: int) -> np.ndarray:
    """Returns the noise of another program that comes and goes every 2 to 12 measurements.

    A fixed order of A and B falls into step with it.
    """
    periods = rng.uniform(2, 12, size=(count, 1))
    phases = rng.random((count, 1))
    waves = np.sin(2 * np.pi * (np.arange(_MEASUREMENTS) / periods + phases))
    return math.sqrt(1.5) * waves + 0.5 * _gaussian(rng, count)


# Of a measurement's logarithm, each with a standard deviation of 1 (the drifting one: around its drift).
NOISE: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "gaussian": _gaussian,
    "heavy-tailed": _heavy_tailed,
    "drifting": _drifting,
    "autocorrelated": _autocorrelated,
    "rhythmic": _rhythmic,
}


def figures(kind: str, rng: np.random.Generator, count: int, *, own_ratio: float = 0.5) -> tuple[np.ndarray, ...]:
    """Returns the noise of two rates of the same processes, the steady rate and that of whole epochs.

    Args:
      own_ratio: the part of the variance of each that the other does not share; at 0 both have the same noise.
    """
    shared, *own = (NOISE[kind](rng, count) for _ in range(3))
    return tuple(math.sqrt(1 - own_ratio) * shared + math.sqrt(own_ratio) * noise for noise in own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The verdicts of many comparisons, and the pairs that each took."""

    verdicts: np.ndarray
    pairs: np.ndarray

    def ratio(self, verdict: str) -> float:
        return float((self.verdicts == verdict).mean())


def simulate(
    noise: Sequence[np.ndarray], *, losses: Sequence[float], threshold: float, rng: np.random.Generator
) -> Verdicts:
    """Runs comparisons of A with B, which serves (1 - loss) times the images/sec of A.

    Args:
      noise: of each figure (comparisons, measurements), of the logarithm of each rate, in the order of measuring.
      losses: of each figure.
    """
    a_first = rng.random((len(noise[0]), PAIRS[-1])) < 0.5
    signs = np.where(a_first, 1, -1)
    logs = [
        signs * (measured[:, 1::2] - measured[:, 0::2]) + math.log1p(-loss)
        for measured, loss in zip(noise, losses, strict=True)
    ]
    return judge(logs, threshold=threshold)


def judge(logs: Sequence[np.ndarray], *, threshold: float) -> Verdicts:
    """Judges log-ratios, of each figure (comparisons, pairs), as the gate does: at each look what is still open."""
    comparisons = len(logs[0])
    verdicts = np.full(comparisons, INCONCLUSIVE, dtype=object)
    pairs = np.full(comparisons, PAIRS[-1])
    waiting = np.arange(comparisons)
    for look in plan(Paired.least_p, PAIRS):
        own = share_out(look, len(logs))
        claims = combine([change(Paired(ratios[waiting, : look.pairs]), own, threshold) for ratios in logs])
        closed = np.zeros(len(waiting), bool)
        for verdict in ("regression", "improved", SAME):
            claimed = getattr(claims, verdict)
            verdicts[waiting[claimed]] = verdict
            closed |= claimed
        pairs[waiting[closed]] = look.pairs
        waiting = waiting[~closed]
        if not len(waiting):
            break
    return Verdicts(verdicts=verdicts, pairs=pairs)


# What a table of power has: the losses of the steady and of the epochs' rate; the spreads of one measurement.
POWER = {
    "5%": (0.05, 0.05),
    "10%": (0.10, 0.10),
    "20%": (0.20, 0.20),
    "50%": (0.50, 0.50),
    "20%, one": (0.0, 0.20),
    "none: same": (0.0, 0.0),
}
SPREADS = (0.02, 0.05, 0.10, 0.15)


def comparisons(kind: str, spread: float, losses: Sequence[float], rng: np.random.Generator, count: int) -> Verdicts:
    """Simulates comparisons of two figures whose noise is of a kind, half of it shared."""
    noise = [spread * figure for figure in figures(kind, rng, count)]
    return simulate(noise, losses=losses, threshold=THRESHOLD_RATIO, rng=rng)
