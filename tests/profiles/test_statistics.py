"""Medians and intervals, on numbers whose bootstrap distribution can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from profiles.statistics import bootstrap, median, median_interval, ratio_interval


@pytest.mark.parametrize(("values", "middle"), [([4.0], 4.0), ([1.0, 9.0], 5.0), ([9.0, 1.0, 2.0], 2.0)])
def test_the_median_is_the_middle(values: list[float], middle: float) -> None:
    assert median(values) == middle
    assert type(median(values)) is float


def test_one_round_has_no_spread() -> None:
    assert median_interval([3.5]) == (3.5, 3.5)


def test_equal_rounds_have_no_spread() -> None:
    assert median_interval([2.0] * 5) == (2.0, 2.0)


@pytest.mark.parametrize(
    ("rounds", "interval"),
    [
        # The median of a resample is the smallest of n values with probability P(binomial(n, 1/n) > n/2): 26 % for
        # three, 5.8 % for five, 1.0 % for seven. Above 2.5 % the interval is the range; else it ends one value inside.
        (3, (1.0, 3.0)),
        (5, (1.0, 5.0)),
        (7, (2.0, 6.0)),
    ],
)
def test_the_interval_of_the_median_is_known_for_few_rounds(rounds: int, interval: tuple[float, float]) -> None:
    assert median_interval([float(value) for value in range(rounds, 0, -1)]) == interval


def test_the_same_numbers_give_the_same_interval() -> None:
    values = np.random.default_rng(1).normal(size=20).tolist()
    assert median_interval(values) == median_interval(values)


def test_the_interval_of_many_normal_numbers_is_as_wide_as_theory_says() -> None:
    # Standard error of a median of normal numbers: sqrt(pi / 2 / n).
    values = np.random.default_rng(2).normal(size=2001)
    low, high = median_interval(values.tolist())
    assert low < np.median(values) < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(np.pi / 2 / 2001), rel=0.3)


def test_several_statistics_come_back_at_once() -> None:
    def both(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.stack([np.median(x, axis=axis), np.median(y, axis=axis)])

    low, high = bootstrap([[1.0, 2.0, 3.0], [7.0, 7.0, 7.0, 7.0]], both)
    assert low.tolist() == [1.0, 7.0]
    assert high.tolist() == [3.0, 7.0]


def test_a_column_of_one_stays_where_it_is_beside_a_longer_one() -> None:
    def total(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.median(x, axis=axis) + np.median(y, axis=axis)

    low, high = bootstrap([[1.0, 2.0, 3.0], [10.0]], total)
    assert (float(low), float(high)) == (11.0, 13.0)


def test_paired_columns_are_resampled_round_by_round() -> None:
    def ratio(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.median(x, axis=axis) / np.median(y, axis=axis)

    ours, theirs = [1.0, 2.0, 4.0, 8.0, 16.0], [2.0, 4.0, 8.0, 16.0, 32.0]
    low, high = bootstrap([ours, theirs], ratio, paired=True)
    assert (float(low), float(high)) == (0.5, 0.5)
    low, high = bootstrap([ours, theirs], ratio)
    assert float(low) < 0.5 < float(high)


def test_a_ratio_is_taken_round_by_round() -> None:
    # Rounds of 1 to 100 ms that are twice as long in each pair: apart, nothing could be said.
    assert ratio_interval([2.0, 20.0, 200.0], [1.0, 10.0, 100.0]) == pytest.approx((2.0, 2.0, 2.0))


def test_the_interval_of_a_ratio_holds_the_rounds_of_a_short_run() -> None:
    assert ratio_interval([1.0, 2.0, 4.0], [1.0, 1.0, 1.0]) == pytest.approx((2.0, 1.0, 4.0))


def test_a_ratio_turned_round_is_its_inverse() -> None:
    ours, theirs = [1.0, 3.0, 2.0, 5.0, 4.0], [2.0, 2.0, 3.0, 3.0, 4.0]
    ratio, low, high = ratio_interval(ours, theirs)
    assert ratio_interval(theirs, ours) == pytest.approx((1 / ratio, 1 / high, 1 / low))


@pytest.mark.parametrize(("ours", "theirs", "counts"), [([1.0], [1.0, 2.0], "1 and 2"), ([], [], "0 and 0")])
def test_ratios_without_partners_are_refused(ours: list[float], theirs: list[float], counts: str) -> None:
    with pytest.raises(ValueError, match=f"as many numerators as denominators.*Received: {counts}"):
        ratio_interval(ours, theirs)


@pytest.mark.parametrize(("ours", "theirs"), [([0.0], [1.0]), ([1.0], [0.0]), ([-1.0], [1.0])])
def test_ratios_of_what_is_not_above_zero_are_refused(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        ratio_interval(ours, theirs)
