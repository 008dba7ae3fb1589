"""Judges how a rate changes along an axis: its shape in words, and whether it is the one that is expected.

Pure functions, which take the rates of rounds and return sentences. `EXPECTATIONS` says what each rate should do.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unstall.benchmarks.pipeline.sweep.axes import AXES, Value
from unstall.profiles.statistics import Interval, geometric_mean, median, shared_ratio, t_interval

# The end of a fit may be this far from what is expected. Most rates of a shared machine spread by up to a tenth over
# their rounds: two of them differ by up to a fifth by chance.
TOLERANCE_RATIO = 0.20
# Smaller changes between two values are no change. Unchanged code varies by some 5 % between runs on a shared machine
# (Quansight's A/A runs: standard deviation of the ratio 0.05).
CHANGE_RATIO = 0.05
FIGURES = {"train": "throughput", "loader": "the loader alone"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a rate should do along an axis; it may do better.

    Attributes:
      figure: a key of `FIGURES`.
      should: the expectation in words.
      power: the rate grows with this power of the value: 0 is flat, 1 in proportion, -2 falls as the pixels grow.
      decode: the expectation is only for variants with this `decode` setting; None for all variants.
    """

    axis: str
    figure: str
    should: str
    power: float = 0.0
    decode: str | None = None


EXPECTATIONS: tuple[Expectation, ...] = (
    # A larger batch spreads what a batch costs over more images.
    Expectation(axis="batch-size", figure="train", should="should be flat or rise"),
    Expectation(axis="batch-size", figure="loader", should="should be flat or rise"),
    # More workers than cores gain nothing, and cost little.
    Expectation(axis="workers", figure="train", should="should be flat or rise"),
    Expectation(axis="workers", figure="loader", should="should be flat or rise"),
    # A convolution's work grows with the pixels; so does that of decoding, resizing and augmenting at a fraction.
    Expectation(axis="image-size", figure="train", should="should not fall faster than the pixels grow", power=-2),
    # Reading and decoding a photo of 400 pixels a side costs the same for any size it is resized to.
    Expectation(
        axis="image-size", figure="loader", should="should be nearly flat, decoding at full size", decode="full"
    ),
    # Decoding, resizing and augmenting cost more for more pixels; reading and entropy decoding do not.
    Expectation(
        axis="image-size",
        figure="loader",
        should="should not fall faster than the pixels grow",
        power=-2,
        decode="scaled",
    ),
    # Photos do not depend on each other. At an efficiency below 0.8, more than a fifth of the cores adds no rate. How
    # the model's own rate grows with the cores is not a question of loading.
    Expectation(axis="cores", figure="train", should="should not fall"),
    Expectation(axis="cores", figure="loader", should="should grow in proportion (efficiency 0.8 at least)", power=1),
    # Keras' own work between two steps is spread over more of them. What a precision gains depends on the device.
    Expectation(axis="steps-per-execution", figure="train", should="should be flat or rise"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A rate of one variant along one axis.

    Attributes:
      figure: a key of `FIGURES`.
      values: in the order of the command line: numbers ascend.
      rounds: at each value, images/sec in each round.
      disturbed: whether the machine was slow during any of the windows.
    """

    axis: str
    variant: str
    figure: str
    decode: str
    values: tuple[Value, ...]
    rounds: tuple[Mapping[int, float], ...]
    disturbed: bool

    @property
    def rates(self) -> list[float]:
        """The mean rate at each value."""
        return [geometric_mean([*by_round.values()]) for by_round in self.rounds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Where a rate is not what it should be.

    Attributes:
      value: the largest value of the axis, the end of the fit.
      expected: what the rate should do.
      measured: what the rate did, with numbers.
      ratio: the end of the fit over what was expected there, the median of the rounds.
      doubtful: whether the machine was slow during some of the windows.
    """

    axis: str
    variant: str
    figure: str
    value: Value
    expected: str
    measured: str
    ratio: float
    doubtful: bool

    @property
    def line(self) -> str:
        return f"{self.variant}: {FIGURES[self.figure]} {self.expected}; {self.measured}"


def expectation_of(series: Series) -> Expectation | None:
    """Returns what a series of two values at least should do; None where nothing is expected of it."""
    if len(series.values) < 2:
        return None
    found = (
        expectation
        for expectation in EXPECTATIONS
        if (expectation.axis, expectation.figure) == (series.axis, series.figure)
        and expectation.decode in (None, series.decode)
    )
    return next(found, None)


def expected_rates(series: Series) -> list[float] | None:
    """Returns the least rate that is expected at each value, from the rate at the first; None where none is."""
    expectation = expectation_of(series)
    if expectation is None:
        return None
    first = int(series.values[0])
    return [series.rates[0] * (int(value) / first) ** expectation.power for value in series.values]


def find(series: Series) -> Finding | None:
    """Returns where a series departs from what is expected of it; None where it does not.

    Each round is fitted by itself, so that a machine that is slower in one round than in another is no finding. A
    finding lies beyond the tolerance in all of the 95 % interval over the rounds; fewer than three rounds have no
    interval, and their median decides.
    """
    expectation = expectation_of(series)
    if expectation is None:
        return None
    fits, growth = _fits(series), _growth(series, expectation)
    beyond = [first * growth * (1 - TOLERANCE_RATIO) - last for first, last in fits]
    interval = t_interval(beyond) if beyond else None
    if not beyond or median(beyond) <= 0 or (interval is not None and interval[0] <= 0):
        return None
    first, last = (median([ends[at] for ends in fits]) for at in (0, 1))
    return Finding(
        axis=series.axis,
        variant=series.variant,
        figure=series.figure,
        value=series.values[-1],
        expected=expectation.should,
        measured=_measured(series, expectation, first, last),
        ratio=median([last / (first * growth) for first, last in fits]),
        doubtful=series.disturbed,
    )


def agreement_of(series: Series) -> str:
    """Says in a sentence that a series is as expected, or may be; empty if it departs, or nothing is expected of it."""
    expectation = expectation_of(series)
    if expectation is None or find(series) is not None:
        return ""
    growth = _growth(series, expectation)
    kept = [last / (first * growth) for first, last in _fits(series)]
    interval = t_interval(kept) if kept else None
    if interval is not None and interval[0] < 1 - TOLERANCE_RATIO:
        return f"Not surely as expected: it {expectation.should}."
    if not kept or median(kept) >= 1 - CHANGE_RATIO:
        return f"As expected: it {expectation.should}."
    return f"Within {TOLERANCE_RATIO:.0%} of what is expected: it {expectation.should}."


def _fits(series: Series) -> list[tuple[float, float]]:
    """Fits each round that all values have; see `fit`."""
    common = sorted(set.intersection(*(set(by_round) for by_round in series.rounds)))
    values = [int(value) for value in series.values]
    return [fit(values, [by_round[number] for by_round in series.rounds]) for number in common]


def _growth(series: Series, expectation: Expectation) -> float:
    """Returns the rate that is expected at the last value, over the rate at the first."""
    return float((int(series.values[-1]) / int(series.values[0])) ** expectation.power)


def fit(values: Sequence[int], numbers: Sequence[float]) -> tuple[float, float]:
    """Fits a line through the logarithms. Returns its ends: at the first value, and at the last."""
    line = np.polyfit(np.log(values), np.log(np.maximum(numbers, 1e-9)), 1)
    first, last = np.exp(np.polyval(line, np.log([values[0], values[-1]]))).tolist()
    return first, last


def _measured(series: Series, expectation: Expectation, first: float, last: float) -> str:
    """Returns in words the rate at both ends of the fit, and how much the rate grew between the ends."""
    begin, end = int(series.values[0]), int(series.values[-1])
    ends = f"fitted {rate_text(last)} img/s at {AXES[series.axis].at.format(f'{end:,}')} against {rate_text(first)}"
    if expectation.power == 0:
        growth = f"{last / first:.2f} times as much"
    else:
        growth = f"{last / first:.3g} times for {end / begin:g} times as many"
        if series.axis == "cores":
            growth += f" (efficiency {last / first / (end / begin):.2f})"
    return f"{ends} at {begin:,}: {growth}"


def rate_text(rate: float) -> str:
    """Returns a rate with three digits at least."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}" if rate >= 10 else f"{rate:.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a rate does along an axis: a label, and a sentence without its full stop."""

    label: str
    text: str


def shape_of(series: Series) -> Shape:
    """Returns in words what a rate does along an axis.

    Between two values it rises or falls if the 95 % interval of the ratio of their rounds says so, and the ratio is
    not within `CHANGE_RATIO` of 1; fewer than three rounds have no interval, and their ratio decides.
    """
    if len(series.values) < 2:
        text = f"{rate_text(series.rates[0])} img/s at {AXES[series.axis].at.format(series.values[0])}, the only value"
        return Shape(label="ONE VALUE", text=f"{series.variant}: {text}")
    if not AXES[series.axis].most:
        return _of_names(series)
    moves = [_direction(after, before) for before, after in itertools.pairwise(series.rounds)]
    ratio, interval = shared_ratio(series.rounds[-1], series.rounds[0])
    if not any(moves):  # small steps may add up
        moves = [_direction(series.rounds[-1], series.rounds[0])] * len(moves)
        if not any(moves) and interval is not None and not _is_narrow(interval):
            mean = rate_text(geometric_mean(series.rates))
            span = AXES[series.axis].span.format(f"{series.values[0]:,}", f"{series.values[-1]:,}")
            text = f"is about {mean} img/s from {span}: its rounds differ too much to see a change"
            return Shape(label="UNCERTAIN", text=f"{series.variant}: {FIGURES[series.figure]} {text}")
    pieces, at = [], 0
    for direction, steps in itertools.groupby(moves):
        begin, at = at, at + len(list(steps))
        pieces.append(_piece(series, direction, begin, at, is_last=at == len(moves)))
    over = f" ({_times(ratio, interval, ' from end to end')})" if ratio is not None and set(moves) != {0} else ""
    label = "VARIES" if {1, -1} <= {*moves} else "RISES" if 1 in moves else "FALLS" if -1 in moves else "FLAT"
    return Shape(label=label, text=f"{series.variant}: {FIGURES[series.figure]} {', then '.join(pieces)}{over}")


def _is_narrow(interval: Interval) -> bool:
    """Whether a ratio that may be 1 is surely near 1."""
    return interval[0] > 1 - TOLERANCE_RATIO and interval[1] < 1 + TOLERANCE_RATIO


def _direction(rates: Mapping[int, float], others: Mapping[int, float]) -> int:
    ratio, interval = shared_ratio(rates, others)
    if ratio is None or abs(ratio - 1) <= CHANGE_RATIO:
        return 0
    low, high = interval or (ratio, ratio)
    return 1 if low > 1 else -1 if high < 1 else 0


def _piece(series: Series, direction: int, begin: int, end: int, *, is_last: bool) -> str:
    first, last = series.values[begin], series.values[end]
    axis = AXES[series.axis]
    is_first = begin == 0
    if direction == 0:
        mean = rate_text(geometric_mean(series.rates[begin : end + 1]))
        if is_first:
            return f"is flat at {mean} img/s from {axis.span.format(f'{first:,}', f'{last:,}')}"
        return "is flat" if is_last else f"is flat to {last:,}"
    verb = "rises" if direction > 0 else "falls"
    if is_first:
        ends = f"from {rate_text(series.rates[begin])} to {rate_text(series.rates[end])} img/s"
        return f"{verb} {ends} from {axis.span.format(f'{first:,}', f'{last:,}')}"
    return f"{verb} to {rate_text(series.rates[end])} at {last:,}"


def _of_names(series: Series) -> Shape:
    """Returns the rate with the first name, and those with the others as multiples of it."""
    (first, rounds), *others = zip(series.values, series.rounds, strict=True)
    said = [f"{rate_text(series.rates[0])} img/s with {first}"]
    for value, by_round in others:
        ratio, interval = shared_ratio(by_round, rounds)
        if ratio is not None:
            said.append(_times(ratio, interval, f" with {value}"))
    text = f"{FIGURES[series.figure]} is {'; '.join(said)}"
    moves = [_direction(by_round, rounds) for _, by_round in others]
    if 1 in moves or set(moves) == {-1}:
        fastest = series.values[series.rates.index(max(series.rates))]
        return Shape(label="FASTEST", text=f"{series.variant}: {fastest} is the fastest: {text}")
    return Shape(label="FLAT", text=f"{series.variant}: none is surely faster than {first}: {text}")


def _times(ratio: float, interval: Interval | None, what: str) -> str:
    return f"{ratio:.2f}x{what}" + (f", {interval[0]:.2f} to {interval[1]:.2f}" if interval is not None else "")
