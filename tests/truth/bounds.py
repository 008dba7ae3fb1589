"""What is promised of each figure that is held against a known truth: one table, `BOUNDS`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unstall.profiles.gate.verdicts import ALARM_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How far a figure may be off.

    Attributes:
      most: percentage points, or a part of the truth.
      in_points: which of the two.
    """

    most: float
    in_points: bool = False

    @property
    def text(self) -> str:
        return f"{self.most:g} points" if self.in_points else f"{self.most:.0%}"

    def holds(self, off: float) -> bool:
        return abs(off) <= self.most

    def off(self, truth: float, measured: float) -> float:
        """Returns how far a figure is from the truth, in what the bound is in."""
        return measured - truth if self.in_points else measured / truth - 1


# Loaders and models that sleep, in which each of the two takes these milliseconds.
GRIDS = ("grid-cpu", "grid-cpu-ahead", "grid-emulated", "grid-emulated-ahead")
# Loops of a script's own, and the library of each.
LOOPS = {"loop-tf-data": "tensorflow", "loop-torch": "torch", "loop-jax": "jax"}
# The grid on a GPU, measured as the main job measures, and as `unstall profile` watches a script.
GRIDS_ON_GPU = ("grid-gpu", "watched-gpu")
ON_GPU = (*GRIDS_ON_GPU, "transfer")
TIMES_MS = (2.0, 10.0, 30.0)
DECODERS = ("OpenCV, full size", "OpenCV, quarter size", "Pillow")

_SHARE = Bound(most=3.0, in_points=True)
_COST = Bound(most=0.10)
_GRID = {"loading, %": _SHARE, "images/sec": Bound(most=0.03)}

# By group and figure. Figures in % are shares of an epoch, as users are shown them.
_OF_LOADS: Mapping[str, Mapping[str, Bound]] = {
    **dict.fromkeys((*GRIDS, *LOOPS, *GRIDS_ON_GPU), _GRID),
    "counting": {"images/sec": Bound(most=0.01)},
    "edges": {"loading, %": _SHARE, "edges, %": _SHARE, "edges, ms": _COST},
    "augmentation": {"loading, %": _SHARE, "augmentation, %": _SHARE},
    "interference": {"loading, %": _SHARE, "interference, %": _SHARE, "loader's CPU, ms/image": _COST},
    "transfer": {"loading, %": _SHARE, "transfer, %": _SHARE},
    "stages": {"CPU us/image": _COST, "wait us/image": _COST, "stage, %": _SHARE},
}
# The groups that are planted loads.
PLANTED = tuple(_OF_LOADS)
BOUNDS: Mapping[str, Mapping[str, Bound]] = {
    **_OF_LOADS,
    # The rate with `StallMonitor` against the rate without it. Judged by an interval.
    "watching": {"epochs/sec": Bound(most=0.01)},
    # What we find of the waiting of a PyTorch script.
    "attributers": {"unstall": _SHARE},
    # How many 95 % intervals hold the truth, in each kind of noise and for each number of rounds.
    "intervals": {"coverage, %": Bound(most=2.0, in_points=True)},
    # How many comparisons of equal code the gate calls a regression.
    "alarms": {"false alarms, %": Bound(most=100 * ALARM_ERROR, in_points=True)},
    # Generated photos against real ones: what stands in for a user's photos must load as they do.
    "photos": dict.fromkeys(("mean bytes", "mean pixels", "bits per pixel", *DECODERS), _COST),
}

# From so many repeats of a planted load on, the mean of the signed errors is tested against zero, by Student's t. Then
# so many of them must lie within the bound, and the mean must not differ from zero both significantly and by more than
# this part of the bound. Repeats average out noise, and no bias.
LEAST_REPEATS, WITHIN_RATIO, BIAS_RATIO = 20, 0.95, 1 / 3
