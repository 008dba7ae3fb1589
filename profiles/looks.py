"""When a comparison that goes on until it knows may look at what it has, and how much of its error each look may spend.

Whoever looks after every pair and stops at the first "significant" one finds a difference wherever there is noise. The
looks are fixed in advance instead, and the error of each verdict is split over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
