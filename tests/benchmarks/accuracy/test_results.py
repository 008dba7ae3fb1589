"""Whether a pipeline costs accuracy: the interval over seeds and the verdict, on planted data."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import a_trained
from tests.builders import an_accuracy_plan as a_plan
from unstall.benchmarks.accuracy.plan import Run
from unstall.benchmarks.accuracy.results import VERDICTS, Difference, against_published, difference_of, judge
from unstall.profiles.statistics import share_interval

PHOTOS = 8


def a_difference(low: float | None, high: float | None) -> Difference:
    return Difference(by_seed=(0.0, 0.0, 0.0), low=low, high=high, photos=100)


def counted(**right: dict[int, tuple[int, int]]):
    """The plan, and runs of some rungs: by seed, the photos that the generator and the tuned pipeline got right."""
    plan = a_plan(rungs=("tutorial", "no-augment"), seeds=5)
    trained = {}
    for rung, seeds in right.items():
        for seed, counts in seeds.items():
            for pipeline, count in zip(("generator", "tuned"), counts, strict=True):
                run = Run(rung=rung.replace("_", "-"), pipeline=pipeline, seed=seed)
                trained[run] = a_trained("1" * count + "0" * (PHOTOS - count))
    return plan, trained


def planted(*, seeds: int, photos: int, cost: float, seed_spread: float, seed: int):
    """The plan and the runs of a rung: seeds of different luck, and `cost` of the tuned pipeline."""
    random = np.random.default_rng(seed)
    plan, trained = a_plan(rungs=("tutorial",), seeds=seeds), {}
    for run in plan.runs:
        luck = random.normal(0, seed_spread)
        share = 0.8 + luck - (cost if run.pipeline == "tuned" else 0)
        trained[run] = a_trained("".join("01"[right] for right in (random.random(photos) < share).astype(int)))
    return plan, trained


def test_three_seeds_have_the_interval_worked_out_by_hand():
    difference = difference_of(*counted(tutorial={0: (4, 5), 1: (4, 4), 2: (4, 6)}))
    # 1/8, 0, 2/8: mean 1/8, standard deviation 1/8; Student's t of 2 degrees of freedom is 4.302653 at 97.5 %.
    half = 4.302653 * (1 / 8) / np.sqrt(3)
    assert difference.by_seed == (1 / 8, 0, 2 / 8)
    assert difference.photos == PHOTOS
    assert (difference.mean, difference.low, difference.high) == pytest.approx((1 / 8, 1 / 8 - half, 1 / 8 + half))
    assert difference.to_dict() == {
        "mean": difference.mean,
        "by_seed": (1 / 8, 0, 2 / 8),
        "low": difference.low,
        "high": difference.high,
        "photos": PHOTOS,
    }


def test_a_seed_counts_once_however_many_rungs_it_has():
    difference = difference_of(
        *counted(tutorial={0: (4, 5), 1: (4, 4), 2: (4, 6)}, no_augment={0: (6, 5), 1: (6, 8), 2: (6, 6)})
    )
    assert difference.by_seed == (0, 1 / 8, 1 / 8)


def test_a_seed_that_lacks_a_pair_of_a_rung_is_left_out():
    plan, trained = counted(tutorial={0: (4, 5), 1: (4, 4), 2: (4, 6)}, no_augment={0: (6, 5), 2: (6, 6)})
    trained[Run(rung="no-augment", pipeline="generator", seed=1)] = a_trained("1" * PHOTOS)
    difference = difference_of(plan, trained)
    assert difference.by_seed == (0, 1 / 8)
    assert (difference.low, difference.high) == (None, None)


def test_a_rung_without_any_pair_leaves_the_others_to_be_judged():
    plan, trained = counted(tutorial={0: (4, 5), 1: (4, 4), 2: (4, 6)})
    trained[Run(rung="no-augment", pipeline="generator", seed=0)] = a_trained("1" * PHOTOS)
    assert difference_of(plan, trained).by_seed == (1 / 8, 0, 2 / 8)


def test_runs_that_all_agree_differ_by_nothing_for_certain():
    difference = difference_of(*counted(tutorial={0: (4, 4), 1: (5, 5), 2: (6, 6)}))
    assert (difference.mean, difference.low, difference.high) == (0, 0, 0)


@pytest.mark.parametrize("seeds", [1, 2])
def test_below_three_seeds_there_is_no_interval_and_no_verdict(seeds):
    difference = difference_of(*counted(tutorial=dict.fromkeys(range(seeds), (8, 2))))
    assert (difference.mean, difference.low, difference.high) == (-6 / 8, None, None)
    assert judge(difference) == "not shown either way"


def test_without_a_pair_nothing_is_shown():
    plan, trained = counted(tutorial={0: (4, 4)})
    del trained[Run(rung="tutorial", pipeline="tuned", seed=0)]
    assert difference_of(plan, trained) is None
    assert difference_of(plan, {}) is None
    assert judge(None) == "not shown either way"


def test_the_interval_holds_the_chance_of_seeds():
    missed = 0
    for seed in range(200):
        difference = difference_of(*planted(seeds=4, photos=400, cost=0.0, seed_spread=0.03, seed=seed))
        missed += not difference.low <= 0 <= difference.high
    # 5 % of 200 are 10; a binomial is above 16 one time in fifty, and below 3 one in three hundred. Draws are fixed.
    assert 3 <= missed <= 16


def test_a_cost_that_was_planted_is_found():
    difference = difference_of(*planted(seeds=12, photos=2000, cost=0.05, seed_spread=0.005, seed=1))
    assert judge(difference) == "costs"
    assert difference.low < -0.05 < difference.high


def test_no_cost_is_shown_to_be_small_with_enough_seeds_and_photos():
    difference = difference_of(*planted(seeds=12, photos=2000, cost=0.0, seed_spread=0.005, seed=2))
    assert judge(difference) == "costs no more than 2 points"


def test_few_photos_show_neither():
    difference = difference_of(*planted(seeds=3, photos=50, cost=0.0, seed_spread=0.01, seed=3))
    assert judge(difference) == "not shown either way"


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
    assert judge(a_difference(low, high)) == verdict
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
