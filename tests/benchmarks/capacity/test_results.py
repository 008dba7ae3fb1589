"""How many workers a training of several hosts needs, what it costs, and how near the simulation is to small runs."""

from __future__ import annotations

import dataclasses

import pytest

from tests.builders import (
    CONSTANTS,
    CUTS,
    a_capacity_document,
    a_checked_pool,
    a_costs,
    a_measured_pool,
    a_scaleout_check_document,
)
from unstall.benchmarks.capacity.results import Results, derive, simulated_host
from unstall.benchmarks.scaleout.check.results import costs_of
from unstall.benchmarks.scaleout.model import PAYLOAD_RATIO, Hosts

HOSTS = Hosts(worker_cores=4.0, trainer_cores=4.0, worker_price=0.25, trainer_price=1.0)
# Of the rate of 1,000 images/sec of each device: ten images take 10 ms, and the next batch comes 0.5 ms later.
FED = 10 / 10.5
NEAR = 0.02


def derived(*runs, **changes) -> Results:
    hosts = dataclasses.replace(HOSTS, **{name: changes.pop(name) for name in list(changes) if hasattr(HOSTS, name)})
    return derive(a_capacity_document(*runs, hosts=hosts, **changes))


def test_the_smallest_fleet_that_reaches_the_goal_is_chosen():
    """Two devices a host take 2,000 images/sec, and a worker with four cores makes 1,000."""
    results = derived()
    assert (results.trainer_hosts, results.demand_images_per_sec) == (2, 4000.0)
    assert results.alone is not None and results.alone.device_ratio == pytest.approx(0.5, rel=NEAR)
    assert results.chosen is not None and results.chosen.workers == 2
    assert [fleet.workers for fleet in results.fleets] == [1, 2, 3] and results.fleets[1] == results.chosen
    assert results.fleets[0].device_ratio < 0.9 <= results.chosen.device_ratio == pytest.approx(FED)
    assert results.chosen.images_per_sec == pytest.approx(4000 * FED)


def test_no_workers_are_needed_where_the_trainers_cores_are_enough():
    results = derived(trainer_cores=9.0)
    assert results.alone is not None and results.alone.device_ratio > 0.9
    assert results.chosen is None


def test_no_fleet_is_chosen_where_none_reaches_the_goal():
    results = derived(goal_ratio=0.96)  # above what the hand-over leaves
    assert results.chosen is None and len(results.fleets) == 3


def test_a_link_is_full_before_the_devices_are_used():
    """1,000 images/sec of 20 KB pass each link: half of what its two devices take."""
    results = derived(link_bytes_per_sec=20e6 / PAYLOAD_RATIO)
    assert results.chosen is None
    last = results.fleets[-1]
    assert last.device_ratio == pytest.approx(0.5, rel=NEAR) and last.link_ratio == pytest.approx(1.0, rel=NEAR)
    assert results.alone is not None and results.alone.link_ratio is None  # nothing is sent


def test_far_workers_are_as_many_as_the_way_takes():
    """10 ms there, 10 ms back, 2 ms to receive: ten images each 22 ms of each worker; a host takes 2,000 a second."""
    results = derived(delay_s=0.01, goal_ratio=0.88)
    assert results.chosen is not None and results.chosen.workers == 4
    assert results.fleets[0].device_ratio == pytest.approx(3 * 10 / 0.022 / 2000, rel=NEAR)


def test_storage_limits_the_first_epoch_and_the_others_where_memory_does_not_hold_the_files():
    """100 GB of files, read at 200 MB/s: 2,000 images/sec. Four workers hold a quarter each, or too little."""
    for memory_bytes, cached in ((0.0, False), (8e9, False), (25e9, True)):
        fleet = derived(storage_bytes_per_sec=200e6, memory_bytes=memory_bytes).fleets[1]
        assert (fleet.workers, fleet.cached) == (2, cached)
        assert fleet.cold_images_per_sec == pytest.approx(2000, rel=NEAR)
        assert fleet.images_per_sec == pytest.approx(4000 * FED if cached else 2000, rel=NEAR)
        assert fleet.device_ratio == pytest.approx(FED if cached else 0.5, rel=NEAR)


def test_the_time_and_the_price_are_those_of_all_epochs_and_hosts():
    """A million images an epoch, ten epochs; two trainers' hosts for 1.00 each, and two workers each for 0.25."""
    chosen = derived().chosen
    assert chosen is not None
    assert chosen.hours == pytest.approx(10 * 1e6 / (4000 * FED) / 3600)
    assert chosen.price == pytest.approx(chosen.hours * 2 * (1.0 + 2 * 0.25))
    assert derived(worker_price=None, trainer_price=None).fleets[0].price is None


def test_only_the_first_epoch_is_slow_where_memory_holds_the_files():
    fleet = derived(storage_bytes_per_sec=200e6, memory_bytes=100e9, goal_ratio=0.9).fleets[1]
    assert (fleet.workers, fleet.cached) == (2, True)
    assert fleet.hours == pytest.approx((1e6 / fleet.cold_images_per_sec + 9e6 / fleet.images_per_sec) / 3600)
    assert fleet.cold_images_per_sec < 0.6 * fleet.images_per_sec


def test_the_files_of_an_epoch_are_as_large_as_those_that_were_measured():
    assert derived().dataset_bytes == 1e6 * 100_000


def test_a_batch_takes_each_part_of_a_host_so_long():
    costs, hosts = a_costs(cuts=CUTS[2:]), dataclasses.replace(HOSTS, link_bytes_per_sec=2e6 / PAYLOAD_RATIO)
    host = simulated_host(costs, hosts, (4.0, 1.0), 2)
    assert host.devices == 2 and host.worker_s == pytest.approx((0.01, 0.04))
    assert host.link_s == pytest.approx(10 * 20_000 / 2e6)
    assert host.trainer_s == pytest.approx(10 * 200e-6)  # one thread receives, though four cores are there
    one = dataclasses.replace(hosts, trainer_cores=1.0)
    assert simulated_host(costs, one, (1.0,), 1).trainer_s == pytest.approx(10 * 300e-6 / 0.9)
    own = simulated_host(costs, hosts, (), 2)
    assert own.worker_s == pytest.approx((10 * 4000e-6 / 4,)) and own.link_s == 0.0


@pytest.mark.parametrize(
    ("rate", "missed"), [(230.0, False), (250.0, False), (272.0, False), (220.0, True), (290.0, True)]
)
def test_a_small_run_is_reproduced_or_missed(rate, missed):
    """A worker with one core makes 250 images/sec."""
    results = derived(a_measured_pool(rates=(rate,)))
    [run] = results.runs
    assert run.simulated_images_per_sec == pytest.approx(250, rel=NEAR)
    assert run.ratio == pytest.approx(250 / rate, rel=NEAR)
    assert run.missed == missed and results.missed == (("1 worker",) if missed else ())


def test_each_round_of_a_small_run_is_simulated_from_its_own_costs():
    [run] = derived(a_measured_pool(rates=(250.0, 125.0, 50.0), slower=(1.0, 2.0, 5.0))).runs
    assert run.ratio == pytest.approx(1, rel=0.05)  # what sending takes does not grow with the rest


def test_a_small_run_of_a_trainer_alone_has_no_cut():
    """It takes 4,000 us of a core an image."""
    alone = a_scaleout_check_document(
        a_measured_pool("alone", rates=(250.0,), workers=False), pools=[a_checked_pool("alone", worker_cores=())]
    )
    costs = costs_of(alone.plan.pools[0], alone.samples.pools[0].rounds[0], alone.samples.constants)
    assert costs.cuts == ()
    host = simulated_host(costs, alone.plan.pools[0].hosts, (), 1)
    assert host.worker_s == (costs.batch_size * 4000e-6 / alone.plan.pools[0].trainer_cores,)


def test_a_run_without_windows_is_left_out():
    assert derived(a_measured_pool(rates=())).runs == ()


def test_without_costs_there_is_no_result():
    assert derive(a_capacity_document(measured=False)) == Results()


@pytest.mark.parametrize(
    "changes", [{"accelerators": 10**9}, {"per_host": 0}, {"per_host": 8}, {"device": None}], ids=str
)
def test_an_edited_document_is_refused_before_anything_is_simulated(changes):
    document = a_capacity_document()
    if "device" in changes:
        changes = {"device": dataclasses.replace(document.plan.device, images_per_sec=None)}
    edited = dataclasses.replace(document, plan=dataclasses.replace(document.plan, **changes))
    with pytest.raises(ValueError, match=r"accelerators, .* a host|the device has no rate"):
        derive(edited)


def test_the_constants_of_the_small_runs_are_their_own():
    """Their trainer receives a batch of ten in 100 ms, the planned one in 2 ms."""
    document = a_capacity_document(a_measured_pool(rates=(100.0,)))
    assert document.samples.runs is not None
    slow = dataclasses.replace(CONSTANTS, receive_ms_per_batch=98.0)
    runs = dataclasses.replace(document.samples.runs, constants=slow)
    results = derive(dataclasses.replace(document, samples=dataclasses.replace(document.samples, runs=runs)))
    assert results.runs[0].simulated_images_per_sec == pytest.approx(90.0, rel=NEAR)  # 0.9 cores, 10 ms an image
    assert results.chosen is not None and results.chosen.workers == 2


def test_more_workers_are_asked_for_where_their_memory_then_holds_the_files():
    """Two workers a host make enough, but only three hold the 100 GB that the storage gives too slowly."""
    chosen = derived(storage_bytes_per_sec=200e6, memory_bytes=20e9).chosen
    assert chosen is not None and (chosen.workers, chosen.cached) == (3, True)
