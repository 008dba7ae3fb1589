"""Which pool is taken, which is the cheapest, and whether a pool pays."""

from __future__ import annotations

import dataclasses

import pytest

from tests.builders import CUTS, a_costs, a_service_plan_document
from unstall.benchmarks.service.planning.model import MOST_WORKERS, Hosts
from unstall.benchmarks.service.planning.results import Results, derive

HOSTS = Hosts(worker_cores=1.0, trainer_cores=1.0, worker_price=0.25, trainer_price=1.0)


def derived(costs=None, **changes) -> Results:
    hosts = dataclasses.replace(HOSTS, **{name: changes.pop(name) for name in list(changes) if hasattr(HOSTS, name)})
    return derive(a_service_plan_document(costs or a_costs(), hosts=hosts, **changes))


def test_the_fewest_workers_that_reach_the_goal_are_chosen_and_pay():
    results = derived()
    assert results.alone is not None and results.alone.images_per_sec == pytest.approx(250.0)
    assert results.chosen is not None and results.cheapest == results.chosen
    assert (results.chosen.served, results.chosen.workers, results.verdict) == ("batches", 4, "pays")
    assert results.chosen.price == pytest.approx(2.0 * 1050 / 3600)  # a million images in 1,050 s


def test_the_pools_of_a_cut_end_where_one_more_worker_changes_nothing():
    files, images, batches = derived().cuts
    assert [(pool.workers, pool.limit) for pool in files.pools] == [(1, "trainer")]
    assert [pool.limit for pool in images.pools] == ["workers", "workers", "trainer"]
    assert [pool.limit for pool in batches.pools] == ["workers", "workers", "workers", "device"]
    assert (files.smallest, images.smallest) == (None, None)
    assert batches.smallest == batches.pools[3]
    assert [cut.by_tensorflow for cut in (files, images, batches)] == [1, 3, 4]
    assert [cut.worker_images_per_sec for cut in (files, images)] == pytest.approx([2000.0, 1e6 / 3000])


def test_the_smallest_pool_of_a_cut_reaches_the_goal_and_one_worker_less_does_not():
    for goal_ratio, workers in ((0.25, 1), (0.26, 2), (0.5, 2), (0.51, 3), (0.75, 3), (0.76, 4)):
        smallest = derived(goal_ratio=goal_ratio).cuts[2].smallest
        assert smallest is not None and smallest.workers == workers


def test_no_more_than_so_many_workers_are_tried():
    [cut] = derived(a_costs(cuts=CUTS[2:]), worker_cores=0.001).cuts
    assert len(cut.pools) == MOST_WORKERS and cut.smallest is None


def test_of_two_cuts_with_as_many_workers_that_with_the_least_network_is_chosen():
    thin = dataclasses.replace(CUTS[2], served="images", bytes_per_image=19_000.0)
    results = derived(a_costs(cuts=(CUTS[2], thin)))
    assert [cut.smallest.workers for cut in results.cuts if cut.smallest] == [4, 4]
    assert results.chosen is not None and results.chosen.served == "images"


def test_a_pool_that_is_faster_may_be_dearer():
    results = derived(worker_price=4.0)
    assert results.chosen is not None and results.alone is not None
    assert (results.chosen.workers, results.verdict) == (4, "faster, but dearer")
    assert results.chosen.price == pytest.approx(17.0 * 1050 / 3600)
    assert results.cheapest == results.alone


def test_without_prices_a_pool_is_faster_and_none_is_the_cheapest():
    results = derived(worker_price=None, trainer_price=None)
    assert (results.verdict, results.cheapest) == ("faster", None)


def test_a_pool_does_not_pay_where_the_trainer_alone_reaches_the_goal():
    for cores, verdict in ((3.6, "does not pay"), (3.5, "pays")):
        results = derived(trainer_cores=cores, worker_price=0.01)
        assert results.verdict == verdict
        assert (results.chosen is None) == (verdict == "does not pay")


def test_a_pool_that_gains_less_than_a_twentieth_does_not_pay():
    """Only files, after which the trainer has all but 300 of 4,000 us to do, and 400 to receive them."""
    results = derived(a_costs(cuts=CUTS[:1]))
    assert results.cuts[0].pools[-1].images_per_sec < 250.0
    assert (results.chosen, results.verdict) == (None, "does not pay")
    # 0.9 cores; to gain 5 %, all after the cut must take less than 0.9 / 1.05 / 250 s = 3,428.6 us.
    for trainer_us, verdict in ((3020.0, "faster, but dearer"), (3035.0, "does not pay")):
        assert derived(a_costs(cuts=[dataclasses.replace(CUTS[0], trainer_us=trainer_us)])).verdict == verdict


def test_where_no_pool_reaches_the_goal_the_fastest_is_chosen():
    results = derived(a_costs(cuts=CUTS[:2]))
    assert results.chosen is not None
    assert (results.chosen.served, results.chosen.workers) == ("images", 3)
    assert results.chosen.device_ratio < 0.9


def test_before_anything_was_measured_there_is_no_result():
    assert derive(a_service_plan_document()) == Results()
