"""Whether a pipeline costs accuracy: the interval and the verdict, on planted data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.accuracy.results import VERDICTS, Difference, against_published, judge, paired_difference
from profiles.statistics import share_interval


def a_difference(mean: float, low: float | None, high: float | None) -> Difference:
    return Difference(mean=mean, low=low, high=high, pairs=4, photos=100)


def planted(*, pairs: int, photos: int, cost: float, pair_spread: float, seed: int) -> tuple[list, list]:
    """Runs of both pipelines: photos of different hardness, seeds of different luck, and `cost` of the tuned one."""
    random = np.random.default_rng(seed)
    hardness = random.normal(0, 0.15, photos)
    tuned, generator = [], []
    for _ in range(pairs):
        luck = random.normal(0, pair_spread)
        generator.append(random.random(photos) < 0.8 + hardness)
        tuned.append(random.random(photos) < 0.8 + hardness - cost + luck)
    return tuned, generator


def test_a_small_table_has_the_interval_worked_out_by_hand():
    generator = [np.array([1, 1, 0, 0], bool), np.array([1, 0, 0, 0], bool)]
    tuned = [np.array([1, 1, 1, 0], bool), np.array([1, 0, 0, 0], bool)]
    found = paired_difference(tuned, generator)
    # x = [[0, 0, 1, 0], [0, 0, 0, 0]]: pairs' means 1/4, 0 (variance 1/32, over 2), photos' 0, 0, 1/2, 0 (variance
    # 1/16, over 4), the rest +-1/8, +-3/8 (sum of squares 3/8, over 3 and over 8). Both terms and the rest are 1/64.
    assert found.mean == pytest.approx(1 / 8)
    assert (found.seed_error, found.photo_error) == pytest.approx((1 / 8, 1 / 8))
    half = stats.t.ppf(0.975, 1) * np.sqrt(1 / 64)
    assert (found.low, found.high) == pytest.approx((1 / 8 - half, 1 / 8 + half))


def test_runs_that_all_agree_differ_by_nothing_for_certain():
    right = [np.array([1, 0, 1], bool)] * 3
    found = paired_difference(right, right)
    assert (found.mean, found.low, found.high) == (0, 0, 0)


def test_one_pair_has_no_interval():
    found = paired_difference([np.array([1, 1], bool)], [np.array([0, 1], bool)])
    assert (found.mean, found.low, found.high) == (0.5, None, None)
    assert judge(found) == "not shown either way"


def test_no_pair_shows_nothing():
    assert judge(None) == "not shown either way"


@pytest.mark.parametrize(
    ("tuned", "generator"),
    [([], []), ([np.ones(3, bool)], [np.ones(2, bool)]), ([np.ones(3, bool)] * 2, [np.ones(3, bool)])],
)
def test_runs_that_are_no_pairs_are_refused(tuned, generator):
    with pytest.raises(ValueError, match="Pairs need as many runs of each pipeline"):
        paired_difference(tuned, generator)


def test_the_interval_holds_the_chance_of_the_photos_that_an_interval_over_pairs_misses():
    """Of 200 data sets with no cost at all, but photos that one pipeline's networks always get wrong by chance."""
    missed = missed_by_pairs_alone = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        leaning = random.choice([-1, 0, 1], 100, p=[0.15, 0.7, 0.15])  # one photo in three leans to a pipeline
        tuned = [np.where(leaning == 0, random.random(100) < 0.8, leaning > 0) for _ in range(8)]
        generator = [np.where(leaning == 0, one, leaning < 0) for one in tuned]
        for one in generator:
            flips = random.random(100) < 0.05
            one[flips] = ~one[flips]
        found = paired_difference(tuned, generator)
        missed += not found.low <= 0 <= found.high
        by_pair = [one.mean() - other.mean() for one, other in zip(tuned, generator, strict=True)]
        low, high = stats.t.interval(0.95, 7, np.mean(by_pair), stats.sem(by_pair))
        missed_by_pairs_alone += not low <= 0 <= high
    assert missed <= 16  # 5 % of 200 are 10, and a binomial is above 16 one time in fifty; here it is always the same
    assert missed_by_pairs_alone > 100


def test_the_interval_holds_the_chance_of_seeds():
    missed = 0
    for seed in range(200):
        tuned, generator = planted(pairs=6, photos=400, cost=0.0, pair_spread=0.03, seed=seed)
        found = paired_difference(tuned, generator)
        missed += not found.low <= 0 <= found.high
    assert missed <= 16


def test_a_cost_that_was_planted_is_found():
    found = paired_difference(*planted(pairs=12, photos=2000, cost=0.05, pair_spread=0.005, seed=1))
    assert judge(found) == "costs"
    assert found.low < -0.05 < found.high


def test_no_cost_is_shown_to_be_small_with_enough_runs_and_photos():
    found = paired_difference(*planted(pairs=12, photos=2000, cost=0.0, pair_spread=0.005, seed=2))
    assert judge(found) == "costs no more than 2 points"


def test_few_photos_show_neither():
    found = paired_difference(*planted(pairs=3, photos=50, cost=0.0, pair_spread=0.01, seed=3))
    assert judge(found) == "not shown either way"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.01, 0.01, "costs no more than 2 points"),
        (-0.015, -0.005, "costs no more than 2 points"),
        (-0.02, 0.05, "costs no more than 2 points"),
        (0.03, 0.05, "costs no more than 2 points"),
        (-0.05, -0.001, "costs"),
        (-0.021, 0.0, "not shown either way"),
        (-0.05, 0.05, "not shown either way"),
    ],
)
def test_the_verdict_follows_the_interval(low, high, verdict):
    assert judge(a_difference((low + high) / 2, low, high)) == verdict
    assert verdict in VERDICTS


@pytest.mark.parametrize(("published", "expected"), [(0.80, "as published"), (0.70, "above"), (0.95, "below")])
def test_a_published_figure_is_held_against_the_interval(published, expected):
    assert against_published(0.78, 0.85, published) == expected


def test_a_share_s_interval_is_wilson_s():
    # Wilson by hand, z = 1.959964: (p + z2/2n +- z sqrt(p(1-p)/n + z2/4n2)) / (1 + z2/n) of 80 in 100.
    assert share_interval(80, 100) == pytest.approx((0.71117, 0.86663), abs=1e-5)
    assert share_interval(0, 10)[0] == 0 and share_interval(10, 10)[1] == 1


@pytest.mark.parametrize(("hits", "trials"), [(0, 0), (3, 2), (-1, 5)])
def test_a_share_that_cannot_be_is_refused(hits, trials):
    with pytest.raises(ValueError, match=f"Received: hits={hits}, trials={trials}"):
        share_interval(hits, trials)
