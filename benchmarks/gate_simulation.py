"""Comparisons that were never measured: noise of known kinds, and what the gate makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profiles.evidence_of_change import Paired
from profiles.gate_verdict import INCONCLUSIVE, SAME, change
from profiles.looks import PAIRS, plan

# Two measurements a pair.
_MEASUREMENTS = 2 * PAIRS[-1]


def _gaussian(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.normal(size=(count, _MEASUREMENTS))


def _heavy_tailed(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.standard_t(3, size=(count, _MEASUREMENTS)) / math.sqrt(3)


def _drifting(rng: np.random.Generator, count: int) -> np.ndarray:
    """A machine that gets slower or faster all the time, by some standard deviations in all."""
    slopes = 5 * rng.normal(size=(count, 1))
    return _gaussian(rng, count) + slopes * np.linspace(0, 1, _MEASUREMENTS)


def _autocorrelated(rng: np.random.Generator, count: int, memory: float = 0.5) -> np.ndarray:
    """Each measurement goes on where the one before was: a neighbour comes and stays for a while."""
    fresh = _gaussian(rng, count)
    noise = np.empty_like(fresh)
    noise[:, 0] = fresh[:, 0]
    for at in range(1, _MEASUREMENTS):
        noise[:, at] = memory * noise[:, at - 1] + math.sqrt(1 - memory**2) * fresh[:, at]
    return noise


def _rhythmic(rng: np.random.Generator, count: int) -> np.ndarray:
    """A neighbour that comes and goes every 2 to 12 measurements: a fixed order of A and B falls into step with it."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What many comparisons came to, one entry each."""

    verdicts: np.ndarray
    pairs: np.ndarray

    def ratio(self, verdict: str) -> float:
        return float((self.verdicts == verdict).mean())


def simulate(
    noise: np.ndarray, *, loss: float, threshold: float, rng: np.random.Generator, fixed_order: str | None = None
) -> Outcomes:
    """Runs comparisons of A with B, which serves (1 - loss) times the images/sec of A.

    Args:
      noise: (comparisons, measurements), of the logarithm of each rate, in the order of measuring.
      fixed_order: "ABBA" in the place of a coin for each pair: what it would be like without.
    """
    a_first = rng.random((len(noise), PAIRS[-1])) < 0.5
    if fixed_order is not None:
        a_first[:] = np.tile([fixed_order[0] == "A", fixed_order[2] == "A"], PAIRS[-1] // 2)
    logs = np.where(a_first, 1, -1) * (noise[:, 1::2] - noise[:, 0::2]) + math.log1p(-loss)
    return judge(logs, threshold=threshold)


def judge(logs: np.ndarray, *, threshold: float) -> Outcomes:
    """Looks at log-ratios (comparisons, pairs) as the gate does: at each look, those that are still open."""
    verdicts = np.full(len(logs), INCONCLUSIVE, dtype=object)
    pairs = np.full(len(logs), PAIRS[-1])
    waiting = np.arange(len(logs))
    for look in plan(Paired.least_p):
        claims = change(Paired(logs[waiting, : look.pairs]), look, threshold)
        closed = np.zeros(len(waiting), bool)
        for verdict in ("regression", "improved", SAME):
            shown = getattr(claims, verdict)
            verdicts[waiting[shown]] = verdict
            closed |= shown
        pairs[waiting[closed]] = look.pairs
        waiting = waiting[~closed]
        if not len(waiting):
            break
    return Outcomes(verdicts=verdicts, pairs=pairs)
