"""Means, medians and intervals, on numbers that can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from unstall.profiles.statistics import (
    delta_interval,
    falls,
    geometric_mean,
    median,
    median_interval,
    range_cell,
    range_text,
    ratio_interval,
    significantly_above,
    spread_ratio,
    t_interval,
)


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


def test_the_geometric_mean_of_ratios_is_the_ratio_of_geometric_means() -> None:
    ours, theirs = [524.0, 300.0, 900.0], [342.0, 290.0, 200.0]
    ratio, _ = ratio_interval(ours, theirs)
    assert ratio == pytest.approx(geometric_mean(ours) / geometric_mean(theirs))


def test_the_spread_is_the_standard_deviation_of_a_round_as_a_part_of_it() -> None:
    logs = [-0.1, 0.0, 0.1]
    assert spread_ratio([math.exp(one) for one in logs]) == pytest.approx(0.1)
    assert spread_ratio([1.0, 2.0]) is None


def test_a_ratio_is_taken_round_by_round() -> None:
    # Rounds of 1 to 100 ms that are twice as long in each pair: apart, nothing could be said.
    ratio, interval = ratio_interval([2.0, 20.0, 200.0], [1.0, 10.0, 100.0])
    assert (ratio, *interval) == pytest.approx((2.0, 2.0, 2.0))


def test_the_interval_of_a_ratio_is_students() -> None:
    # Logarithms -1, 0 and 1: their error is 1 / sqrt(3); Student's t of two degrees of freedom at 97.5 % is 4.3027.
    ratio, interval = ratio_interval([math.exp(-1), 1.0, math.exp(1)], [1.0] * 3)
    assert ratio == pytest.approx(1)
    assert np.log(interval) == pytest.approx([-4.3027 / math.sqrt(3), 4.3027 / math.sqrt(3)], rel=1e-4)


@pytest.mark.parametrize("rounds", [1, 2])
def test_few_rounds_have_no_interval(rounds: int) -> None:
    assert ratio_interval([2.0] * rounds, [1.0] * rounds) == (pytest.approx(2), None)
    assert t_interval([1.0] * rounds) is None
    assert range_text(None) == "no interval"
    assert range_text((0.5, 2.0)) == "0.50 to 2.00"
    assert (range_cell(None), range_cell((0.5, 2.0))) == ("-", "0.50-2.00")


def test_a_ratio_turned_round_is_its_inverse() -> None:
    ours, theirs = [1.0, 3.0, 2.0, 5.0, 4.0], [2.0, 2.0, 3.0, 3.0, 4.0]
    ratio, (low, high) = ratio_interval(ours, theirs)
    turned, interval = ratio_interval(theirs, ours)
    assert (turned, *interval) == pytest.approx((1 / ratio, 1 / high, 1 / low))


def test_the_more_are_compared_the_more_one_must_show() -> None:
    # p = 0.03 alone: significant by itself, and not as one of two.
    t = scipy.stats.t.isf(0.015, 4)
    logs = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    rates = np.exp(logs + t * np.std(logs, ddof=1) / math.sqrt(5)).tolist()
    ones = [1.0] * 5
    assert significantly_above([(rates, ones)]) == (True,)
    assert significantly_above([(rates, ones), (ones, ones)]) == (False, False)
    # A clear one takes nothing from the others: Holm, and not Bonferroni.
    assert significantly_above([(rates, ones), ([2.0] * 5, ones)]) == (True, True)


def test_what_is_significantly_below_is_not_above() -> None:
    ones = [1.0] * 4
    assert significantly_above([([0.5] * 4, ones), ([2.0] * 4, ones), (ones, ones)]) == (False, True, False)
    assert significantly_above([([2.0] * 2, [1.0] * 2)]) == (False,)  # too few rounds
    assert significantly_above([]) == ()


@pytest.mark.long
def test_of_twenty_that_are_the_same_one_is_rarely_significant() -> None:
    # 5 % of families, whatever is in them; one by one it would be 40 %.
    rng = np.random.default_rng(3)
    families = rng.normal(size=(400, 20, 5))
    wrong = sum(any(significantly_above([(np.exp(one).tolist(), [1.0] * 5) for one in few])) for few in families)
    assert wrong / 400 < 0.05


def test_the_interval_of_a_difference_takes_what_rounds_have_in_common_out() -> None:
    def difference(means: dict[str, float]) -> np.ndarray:
        return np.array([means["a"] - means["b"], means["a"]])

    a, b = [1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 2.0, 3.0]
    middle, interval = delta_interval(difference, [{"a": a, "b": b}])
    assert interval is not None
    assert middle.tolist() == [1.0, 2.5]
    assert (interval[0][0], interval[1][0]) == pytest.approx((1.0, 1.0), abs=1e-6)
    assert (interval[0][1], interval[1][1]) == pytest.approx(t_interval(a), rel=1e-6)
    # Of other rounds nothing cancels: Welch's interval, as scipy has it.
    _, apart = delta_interval(difference, [{"a": a}, {"b": b[:3]}])
    assert apart is not None
    known = scipy.stats.ttest_ind(a, b[:3], equal_var=False).confidence_interval(0.95)
    assert (apart[0][0], apart[1][0]) == pytest.approx((known.low, known.high), rel=1e-6)


def test_a_group_of_few_rounds_leaves_no_interval() -> None:
    def first(means: dict[str, float]) -> np.ndarray:
        return np.array([means["a"]])

    assert delta_interval(first, [{"a": [1.0, 2.0, 3.0]}, {"b": [1.0, 2.0]}])[1] is None


@pytest.mark.parametrize(("ours", "theirs", "counts"), [([1.0], [1.0, 2.0], "1 and 2"), ([], [], "0 and 0")])
def test_ratios_without_partners_are_refused(ours: list[float], theirs: list[float], counts: str) -> None:
    with pytest.raises(ValueError, match=f"as many numerators as denominators.*Received: {counts}"):
        ratio_interval(ours, theirs)


@pytest.mark.parametrize(("ours", "theirs"), [([0.0], [1.0]), ([1.0], [0.0]), ([-1.0], [1.0])])
def test_ratios_of_what_is_not_above_zero_are_refused(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        ratio_interval(ours, theirs)


@pytest.mark.parametrize(
    ("values", "p_value"),
    [((5, 4, 3, 2, 1), 1 / 120), ((1, 2, 3, 4, 5), 1.0), ((5, 4, 3, 1, 2), 5 / 120)],
)
def test_a_fall_is_as_likely_as_its_order_among_all_orders(values: tuple[float, ...], p_value: float) -> None:
    assert falls(values) == pytest.approx(p_value)
