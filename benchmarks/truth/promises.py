"""What the design of this project promises of each figure that `truth` checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from unstall.profiles.gate import ALARM_ERROR, FAILED, IMPROVED, REGRESSION


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What is promised of a group of figures.

    Attributes:
      title: what the group measures.
      bounds: of each figure, by its name; a figure without a bound is shown beside the others and not judged.
    """

    title: str
    bounds: Mapping[str, Bound]


SHARE_BOUND = Bound(most=3.0, in_points=True)
RATE_BOUND = Bound(most=0.03)
_COLUMN_BOUND = Bound(most=0.10)

# Of the grids: milliseconds that a loader takes for a batch, and a model for a step.
TIMES_MS = (2.0, 10.0, 30.0)
_GRID = Promise(
    title="Loaders and models that sleep, against an epoch of `fit` and plain steps by one clock.",
    bounds={"loading, %": SHARE_BOUND, "images/sec": RATE_BOUND},
)
GRIDS = ("grid-cpu", "grid-cpu-ahead", "grid-emulated", "grid-emulated-ahead")
# Loops of a script's own, and the library of each. Those of a library which this project does not install are measured
# only by name.
LOOPS = {"loop-tf-data": "tensorflow", "loop-torch": "torch", "loop-jax": "jax"}
# These need a GPU; other groups need that there is none. The grid is measured in two ways: as the main job measures,
# and as `unstall profile` watches a script.
TRANSFER = "transfer"
GRIDS_ON_GPU = ("grid-gpu", "watched-gpu")
ON_GPU = (*GRIDS_ON_GPU, TRANSFER)
# Groups of planted loads; --only names them. Figures in % are shares of an epoch, as users are shown them.
PLANTED = {
    **dict.fromkeys(GRIDS, _GRID),
    **dict.fromkeys(
        LOOPS,
        replace(
            _GRID,
            title="Loops of a script's own whose loaders and steps sleep, against one clock around the same loop.",
        ),
    ),
    "counting": Promise(
        title="A loader that gives a batch every 15 ms, whatever happens in between, for 10 to 1,000 steps.",
        bounds={"images/sec": Bound(most=0.01)},
    ),
    "edges": Promise(
        title="An epoch whose first batch and whose end take long, against epochs of two lengths by one clock.",
        bounds={"loading, %": SHARE_BOUND, "edges, %": SHARE_BOUND, "edges, ms": _COLUMN_BOUND},
    ),
    "augmentation": Promise(
        title="A layer in front of a model that sleeps, against plain steps with and without the layer.",
        bounds={"loading, %": SHARE_BOUND, "augmentation, %": SHARE_BOUND},
    ),
    "interference": Promise(
        title="A loader that burns a core beside a CPU model, against plain steps with and without the loader beside.",
        bounds={"loading, %": SHARE_BOUND, "interference, %": SHARE_BOUND, "loader's CPU, ms/image": _COLUMN_BOUND},
    ),
    **dict.fromkeys(
        GRIDS_ON_GPU,
        replace(
            _GRID,
            title="Loaders that sleep and a model that multiplies on a GPU, against `fit` and steps by one clock.",
        ),
    ),
    TRANSFER: Promise(
        title="Batches on their way to a GPU, against plain steps on batches there and on batches of the host.",
        bounds={"loading, %": SHARE_BOUND, "transfer, %": SHARE_BOUND},
    ),
    "stages": Promise(
        title="Stages of a tf.data pipeline that burn or wait, in every order of parallelism.",
        bounds={"CPU us/image": _COLUMN_BOUND, "wait us/image": _COLUMN_BOUND, "stage, %": SHARE_BOUND},
    ),
}

# From so many repeats of a case on, the mean of the signed errors is tested against zero, by Student's t. Then so many
# of them must lie within the bound, and the mean must not differ from zero both significantly and by more than this
# part of the bound. Repeats average out noise, and no bias.
LEAST_REPEATS, WITHIN_RATIO, BIAS_RATIO = 20, 0.95, 1 / 3

# The ratio of images/sec with the monitor to those without lies so near to 1, on either side.
WATCHING_RATIO = 0.01

# Source: the issue that asked for generated photos.
_PHOTOS_BOUND = Bound(most=0.10)
DECODERS = ("OpenCV, full size", "OpenCV, quarter size", "Pillow")
PHOTOS = Promise(
    title="generated photos against real ones",
    bounds=dict.fromkeys(("mean bytes", "mean pixels", "bits per pixel", *DECODERS), _PHOTOS_BOUND),
)

# Of 100 intervals, 95 hold the truth; in each kind of noise and for each number of rounds it may be two more or less.
COVERAGE_BOUND = Bound(most=2.0, in_points=True)
# The least chance of as many or as few of the real intervals, if as many hold the truth as is written.
LEAST_P = 0.01

# Of 40 verdicts: confident and wrong at most, confident and right at least. Source: issue 16 of this project.
MOST_WRONG_RATIO = 2 / 40
LEAST_RIGHT_RATIO = {"quiet": 36 / 40, "beside a neighbour": 20 / 40}

# Groups of the part "attributers": the shares that each tool finds, and comparisons of the same code by TraceML. Only
# ours are promised anything.
SHARES, PAIRS = "shares", "pairs"
OURS, TRACEML = "unstall", "TraceML"

CAUGHT_RATIO = 0.95
ALARMS_BOUND = Bound(most=100 * ALARM_ERROR, in_points=True)
# A fault ends with exactly the exit code that is promised.
EXIT_CODE_BOUND = Bound(most=0.0, in_points=True)
# So many simulated comparisons tell 1 % from 1.1 %; beside them, as many as a person could look through.
SIMULATED, SIMULATED_FEW = 20_000, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePart:
    """A comparison of known outcome, which the gate decides again and again.

    Attributes:
      loss: of images/sec, planted in B; a ratio.
      burned: whether another process burns a core throughout.
      text: the part in a few words.
    """

    loss: float
    burned: bool
    text: str

    @property
    def _is_caught(self) -> bool:
        """Whether nearly every try is to find the loss."""
        return self.loss >= 0.2 and not self.burned

    def holds(self, verdicts: Counter[str]) -> bool:
        """Returns whether the verdicts of all tries are what is promised."""
        if verdicts[FAILED]:
            return False
        if self._is_caught:
            return verdicts[REGRESSION] >= CAUGHT_RATIO * sum(verdicts.values())
        return not verdicts[IMPROVED] and (self.loss > 0 or not verdicts[REGRESSION])

    @property
    def promised(self) -> str:
        if self._is_caught:
            return f"regr. {CAUGHT_RATIO:.0%}"
        return "no impr." if self.loss else "neither"


GATE_PARTS = {
    "same": GatePart(loss=0.0, burned=False, text="same against itself"),
    "slower-5": GatePart(loss=0.05, burned=False, text="5 % planted"),
    "slower-10": GatePart(loss=0.10, burned=False, text="10 % planted"),
    "slower-20": GatePart(loss=0.20, burned=False, text="20 % planted"),
    "slower-50": GatePart(loss=0.50, burned=False, text="50 % planted"),
    "same-burned": GatePart(loss=0.0, burned=True, text="same, a core burned"),
}
SIMULATION, FAULTS = "simulation", "faults"
