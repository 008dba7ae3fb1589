"""What each figure should do along an axis, and where it does not: compares a least-squares fit with what is expected.

How rates grow with cores, batch size and image size is what `unstall pipeline --sweep` expects of the loader alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tests.growth.places import AXES, FIGURES
from unstall.benchmarks.pipeline.sweep.findings import EXPECTATIONS as OF_RATES
from unstall.benchmarks.pipeline.sweep.findings import TOLERANCE_RATIO, Expectation, fit
from unstall.profiles.statistics import median, t_interval

# In addition to the tolerance, the end may be this far from what is expected, in the figure's unit. An epoch takes at
# least a second, so that 10 ms of a first batch, or 0.2 s of work that is done once, do not matter. Between equal runs,
# the freed memory that a process keeps differed by some 20 MB.
NEGLIGIBLE = {
    "images_per_sec": 0.0,
    "first_batch_s": 0.010,
    "memory_bytes": 20e6,
    "listing_s": 0.2,
    "listing_again_s": 0.2,
    "build_s": 0.2,
}
# Of a list that is longer than this, the names alone take more than what is negligible.
FLAT_MEMORY_FILES = 100_000
# What a file takes of memory beyond that: its name (17 bytes in these lists), its label, its size, what sorting needs,
# and TensorFlow's own copy of the name. Measured: 45 to 65.
MOST_BYTES_A_FILE = 80


# Of the keys of `FIGURES`. A rate may do better and rise; all other figures may do better and fall.
EXPECTATIONS: tuple[Expectation, ...] = (
    *(replace(rate, figure="images_per_sec") for rate in OF_RATES if rate.figure == "loader" and rate.axis in AXES),
    # A step reads, decodes and draws one batch, however long the list is.
    Expectation(axis="files", figure="images_per_sec", should="should not fall"),
    # Nothing of a first batch needs the rest of the list; a loader that shuffles or draws all of it first pays here.
    Expectation(axis="files", figure="first_batch_s", should="should be flat"),
    # A file takes its name as bytes, twice with TensorFlow's, and a dozen numbers: little beside the batches, up to
    # 100,000 files. As a string of Python its path alone would take 150 bytes, and TensorFlow's copy of it 130.
    Expectation(axis="files", figure="memory_bytes", should="should be flat"),
    # The first scan opens each file once; another asks for their status, and reads the cache.
    Expectation(axis="files", figure="listing_s", should="should be in proportion", power=1),
    Expectation(axis="files", figure="listing_again_s", should="should be in proportion", power=1),
    # Loaders that only take a folder get a link a file; tracing takes a constant time.
    Expectation(axis="files", figure="build_s", should="should not grow faster than the list", power=1),
    Expectation(axis="cores", figure="first_batch_s", should="should not grow"),
    # Each image of the first batch costs the same.
    Expectation(axis="batch-size", figure="first_batch_s", should="should be in proportion", power=1),
    Expectation(axis="image-size", figure="first_batch_s", should="should not grow faster than the pixels", power=2),
    # The list is the same at each value of these axes, and so is what is built for it.
    *(
        Expectation(axis=axis, figure=figure, should="should be flat")
        for axis in ("cores", "batch-size", "image-size")
        for figure in ("listing_s", "listing_again_s", "build_s")
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One figure of one variant along one axis.

    Attributes:
      values: ascending.
      rounds: at each value, the number in each round that has one.
    """

    axis: str
    figure: str
    decode: str
    values: tuple[int, ...]
    rounds: tuple[Mapping[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Where a figure is not what it should be.

    Attributes:
      value: the largest value of the axis, the end of the fit.
      measured: what the figure did, with numbers.
      ratio: the end of the fit over what was expected there, the median of the rounds.
    """

    axis: str
    figure: str
    value: int
    expected: str
    measured: str
    ratio: float

    @property
    def line(self) -> str:
        return f"{self.axis}: {FIGURES[self.figure].name} {self.expected}; {self.measured}"


def checks(series: Iterable[Series]) -> tuple[tuple[Series, Expectation], ...]:
    """Returns what can be checked: each series of at least two values, paired with each expectation for the series."""
    return tuple(
        (figures, expectation)
        for figures, expectation in itertools.product(series, EXPECTATIONS)
        if (figures.axis, figures.figure) == (expectation.axis, expectation.figure)
        and expectation.decode in (None, figures.decode)
        and len(figures.values) > 1
    )


def find(series: Iterable[Series]) -> tuple[Finding, ...]:
    """Returns a finding for each series and each expectation that the series does not meet.

    Each round is fitted by itself, so that a machine that is slower in one round than in another is no finding. A
    finding lies beyond both tolerances in all of the 95 % interval over the rounds; fewer than three rounds have no
    interval, and their median decides.
    """
    judged = (_judge(figures, expectation) for figures, expectation in checks(series))
    return tuple(finding for finding in judged if finding is not None)


def _judge(series: Series, expectation: Expectation) -> Finding | None:
    sign = -1 if series.figure == "images_per_sec" else 1
    whole_rounds = sorted(set.intersection(*(set(rounds) for rounds in series.rounds)))
    fits = [fit(series.values, [at[number] for at in series.rounds]) for number in whole_rounds]
    growth = (series.values[-1] / series.values[0]) ** expectation.power
    beyond = [
        sign * (last - first * growth) - TOLERANCE_RATIO * first * growth - NEGLIGIBLE[series.figure]
        for first, last in fits
    ]
    interval = t_interval(beyond) if beyond else None
    if not beyond or median(beyond) <= 0 or (interval is not None and interval[0] <= 0):
        return None
    first, last = (median([ends[at] for ends in fits]) for at in (0, 1))
    return Finding(
        axis=series.axis,
        figure=series.figure,
        value=series.values[-1],
        expected=expectation.should,
        measured=_measured(series, expectation, first, last),
        ratio=median([last / (first * growth) for first, last in fits]),
    )


def _three_digits(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 1000 else f"{ratio:.3g}"


def _measured(series: Series, expectation: Expectation, first: float, last: float) -> str:
    """Returns in words the figure at both ends of the fit, and how much the figure grew between the ends."""
    figure, begin, end = FIGURES[series.figure], series.values[0], series.values[-1]
    ends = f"fitted {figure.with_unit(last)} at {end:,} {AXES[series.axis]} against {figure.with_unit(first)}"
    if expectation.power == 0:
        growth = f"{last / first:.2f} times as much"
    else:
        growth = f"{_three_digits(last / first)} times for {end / begin:g} times as many"
        if series.axis == "cores":
            growth += f" (efficiency {last / first / (end / begin):.2f})"
    return f"{ends} at {begin:,}: {growth}"
