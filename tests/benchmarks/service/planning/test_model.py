"""The predicted rate of a pool, by hand: each part in turn is the slowest."""

from __future__ import annotations

import math

import pytest

from tests.builders import CUTS, a_costs
from unstall.benchmarks.service.planning import model
from unstall.benchmarks.service.planning.model import LIMITS, PAYLOAD_RATIO, Hosts


def hosts(**changes: float | None) -> Hosts:
    values: dict[str, float | None] = {"worker_cores": 1.0, "trainer_cores": 1.0}
    return Hosts(**(values | changes))  # type: ignore[arg-type]


def test_a_worker_makes_and_sends():
    """3,800 us to make an image, 1 ms for a batch of ten, and 5 ms a megabyte for its 20 KB: 4,000 us."""
    costs = a_costs()
    assert model.worker_rate(costs, CUTS[2], 1.0) == pytest.approx(250.0)
    assert model.worker_rate(costs, CUTS[2], 0.5) == pytest.approx(125.0)
    assert model.worker_rate(a_costs(batch_size=20), CUTS[2], 1.0) == pytest.approx(1e6 / 3950)


def test_a_pipeline_that_cannot_use_more_cores_uses_no_more_on_a_worker():
    costs = a_costs(most_cores=1.5)
    assert model.worker_rate(costs, CUTS[2], 4.0) == pytest.approx(375.0)
    assert model.worker_rate(costs, CUTS[2], 1.0) == pytest.approx(250.0)


def test_a_worker_keeps_a_part_of_its_cores_busy_with_nothing():
    costs = a_costs(constants={"worker_standing_cores": 0.2})
    assert model.worker_rate(costs, CUTS[2], 1.0) == pytest.approx(200.0)
    assert model.worker_rate(costs, CUTS[2], 0.1) == pytest.approx(2.5)  # a hundredth of a core at least


def test_a_trainer_receives_by_the_batch_and_by_the_byte():
    """1 ms for a batch of ten, and 5 ms a megabyte for 20 KB or 60 KB."""
    assert model.receive_us_per_image(a_costs(), CUTS[2]) == pytest.approx(200.0)
    assert model.receive_us_per_image(a_costs(), CUTS[0]) == pytest.approx(400.0)


def test_workers_add_up_even_where_they_are_unequal():
    pool = model.pool(a_costs(), hosts(), "batches", [0.2, 0.5, 1.0])
    assert (pool.limit, pool.workers, pool.served) == ("workers", 3, "batches")
    assert pool.images_per_sec == pytest.approx(250.0 * 1.7)
    assert pool.device_ratio == pytest.approx(0.425)
    assert pool.network_bytes_per_sec == pytest.approx(250.0 * 1.7 * 20_000)


def test_a_device_is_the_limit_and_waits_for_each_batch():
    """Ten images take 10 ms, and the next batch comes 0.5 ms later."""
    pool = model.pool(a_costs(), hosts(), "batches", [1.0] * 8)
    assert pool.limit == "device"
    assert pool.images_per_sec == pytest.approx(10 / 0.0105)
    assert pool.device_ratio == pytest.approx(10 / 10.5)


def test_a_link_is_the_limit():
    link = 400 * 20_000 / PAYLOAD_RATIO
    pool = model.pool(a_costs(), hosts(link_bytes_per_sec=link), "batches", [1.0] * 4)
    assert pool.limit == "network" and pool.images_per_sec == pytest.approx(400.0)
    assert pool.network_bytes_per_sec == pytest.approx(400 * 20_000)
    # A link that carries more than the workers send changes nothing.
    assert model.pool(a_costs(), hosts(link_bytes_per_sec=link), "batches", [1.0]).limit == "workers"


def test_a_far_worker_sends_ten_images_each_time_that_it_is_asked():
    """50 ms to ask and 50 ms to come; then 200 us to receive each of ten."""
    far = hosts(delay_s=0.05)
    pool = model.pool(a_costs(), far, "batches", [1.0])
    assert pool.limit == "delay" and pool.images_per_sec == pytest.approx(10 / 0.102)
    assert model.pool(a_costs(), far, "batches", [1.0] * 3).images_per_sec == pytest.approx(3 * 10 / 0.102)
    assert model.pool(a_costs(), hosts(delay_s=0.01), "batches", [1.0]).limit == "workers"


@pytest.mark.parametrize(
    ("served", "trainer_cores", "model_us", "expected"),
    [
        ("images", 1.0, 0.0, 0.9 / 1200e-6),  # 200 us to receive, 1,000 us after the cut; 0.1 cores stand
        ("images", 0.5, 0.0, 0.4 / 1200e-6),
        ("batches", 0.4, 700.0, 0.3 / 1000e-6),  # 200 us, 100 us, and 700 us of the model
        ("batches", 0.05, 0.0, 0.01 / 300e-6),  # less than its client keeps busy
    ],
)
def test_a_trainers_cores_are_the_limit(served, trainer_cores, model_us, expected):
    pool = model.pool(a_costs(model_us=model_us), hosts(trainer_cores=trainer_cores), served, [10.0] * 10)
    assert pool.limit == "trainer" and pool.images_per_sec == pytest.approx(expected)


def test_one_thread_receives_however_many_cores_a_trainer_has():
    costs = a_costs(constants={"receive_ms_per_batch": 20.0})  # 2,000 us an image, and 100 us for its bytes
    pool = model.pool(costs, hosts(trainer_cores=64.0), "batches", [10.0] * 10)
    assert pool.limit == "receive" and pool.images_per_sec == pytest.approx(1e6 / 2100)


def test_a_trainer_alone_loads_with_all_its_cores():
    pool = model.alone(a_costs(), hosts(trainer_cores=2.0))
    assert (pool.limit, pool.served, pool.workers, pool.network_bytes_per_sec) == ("loader", "", 0, 0.0)
    assert pool.images_per_sec == pytest.approx(500.0) and pool.device_ratio == pytest.approx(0.5)


def test_a_trainer_alone_shares_its_cores_with_its_model():
    pool = model.alone(a_costs(model_us=1000.0), hosts(trainer_cores=2.0))
    assert pool.limit == "trainer" and pool.images_per_sec == pytest.approx(2 / 5000e-6)


def test_a_trainer_alone_with_many_cores_is_limited_by_what_its_pipeline_can_use_or_by_its_device():
    pool = model.alone(a_costs(most_cores=1.5), hosts(trainer_cores=8.0))
    assert pool.limit == "loader" and pool.images_per_sec == pytest.approx(375.0)
    pool = model.alone(a_costs(), hosts(trainer_cores=8.0))
    assert pool.limit == "device" and pool.images_per_sec == 1000.0


def test_a_million_images_cost_what_the_hosts_cost_for_the_time_that_they_take():
    priced = hosts(worker_price=0.5, trainer_price=2.0)
    pool = model.pool(a_costs(), priced, "batches", [1.0, 1.0])
    assert pool.images_per_sec == pytest.approx(500.0)  # a million in 2,000 s
    assert pool.price == pytest.approx((2.0 + 2 * 0.5) * 2000 / 3600)
    alone = model.alone(a_costs(), priced)
    assert alone.price == pytest.approx(2.0 * 4000 / 3600)
    assert model.pool(a_costs(), hosts(), "batches", [1.0]).price is None


@pytest.mark.parametrize(("worker_cores", "workers"), [(1.0, 4), (0.5, 8), (0.9, 5), (4.0, 1), (5.0, 1)])
def test_tensorflows_formula_divides_the_trainers_rate_by_a_workers(worker_cores, workers):
    assert model.by_tensorflow(a_costs(), hosts(worker_cores=worker_cores), "batches") == workers


def test_tensorflows_formula_knows_no_link():
    assert model.by_tensorflow(a_costs(), hosts(link_bytes_per_sec=1.0), "batches") == 4


def test_every_limit_has_its_words():
    limited = {
        model.alone(a_costs(), hosts()).limit,
        model.alone(a_costs(model_us=1.0), hosts()).limit,
        model.pool(a_costs(), hosts(), "batches", [1.0]).limit,
        model.pool(a_costs(), hosts(), "batches", [9.0]).limit,
        model.pool(a_costs(), hosts(link_bytes_per_sec=1.0), "batches", [1.0]).limit,
        model.pool(a_costs(), hosts(delay_s=9.0), "batches", [1.0]).limit,
        model.pool(a_costs(constants={"receive_ms_per_batch": 99.0}), hosts(trainer_cores=9.0), "batches", [9.0]).limit,
        model.pool(a_costs(), hosts(storage_bytes_per_sec=1.0), "batches", [1.0] * 9).limit,
    }
    assert limited == set(LIMITS)


FLEET = {"accelerators": 4, "per_host": 2, "worker_cores": 4.0, "trainer_cores": 4.0}
# Of the rate of 1,000 images/sec of each device: ten images take 10 ms, and the next batch comes 0.5 ms later.
FED = 10 / 10.5
# What hosts lose as they wait for each other: of two, 0.4 %.
TOGETHER = 1 / (1 + 0.01 * (1 + math.log(2)) / 4)


def test_hosts_of_a_fleet_add_up():
    """A worker of four cores makes 1,000 images/sec, and two devices take 2,000."""
    one, two = (model.pool(a_costs(), hosts(**FLEET), "batches", [4.0] * workers) for workers in (1, 2))
    assert (one.limit, one.workers) == ("workers", 1)
    assert one.images_per_sec == pytest.approx(2000.0 * TOGETHER) and one.device_ratio == pytest.approx(0.5 * TOGETHER)
    assert two.limit == "device" and two.images_per_sec == pytest.approx(4000.0 * FED)
    assert two.network_bytes_per_sec == pytest.approx(2000.0 * FED * 20_000)  # of each trainer's link
    alone = model.alone(a_costs(), hosts(**FLEET))
    assert alone.limit == "loader" and alone.images_per_sec == pytest.approx(2000.0 * TOGETHER)


def test_a_full_link_is_the_limit_of_a_fleet():
    """1,000 images/sec of 20 KB pass each link: half of what its two devices take."""
    full = model.pool(a_costs(), hosts(**FLEET, link_bytes_per_sec=20e6 / PAYLOAD_RATIO), "batches", [4.0] * 4)
    assert full.limit == "network" and full.device_ratio == pytest.approx(0.5)
    assert full.network_bytes_per_sec == pytest.approx(20e6)


def test_one_thread_of_a_trainer_receives_the_batches_of_all_its_accelerators():
    many = hosts(**(FLEET | {"accelerators": 16, "per_host": 8}))
    pool = model.pool(a_costs(), many, "batches", [4.0] * 16)
    assert pool.limit == "receive" and pool.images_per_sec == pytest.approx(2 * 1e6 / 200)


def test_hosts_in_lock_step_run_at_the_slowest_hosts_rate():
    assert model.in_lock_step([10.0]) == 10.0
    assert model.in_lock_step([10.0, 50.0]) == model.in_lock_step([10.0, 10.0]) == pytest.approx(20.0 * TOGETHER)


def test_hosts_whose_workers_vary_wait_for_each_other():
    """Each alone makes ten images/sec; together they take the latest of all batches at each step."""
    losses = [1 - model.in_lock_step([10.0] * number) / (10.0 * number) for number in (1, 2, 8, 32, 128)]
    assert losses == sorted(losses) and losses[0] == 0.0
    assert losses[1:] == pytest.approx([0.004, 0.008, 0.011, 0.014], abs=0.001)


def test_storage_is_shared_by_all_hosts():
    """Files of 100 KB, read at 200 MB/s: 2,000 images/sec, however many hosts there are."""
    shared = {"storage_bytes_per_sec": 200e6}
    for accelerators in (4, 8, 16):
        fleet = hosts(**(FLEET | {"accelerators": accelerators}), **shared)
        pool = model.pool(a_costs(), fleet, "batches", [4.0] * 4)
        assert pool.limit == "storage" and pool.images_per_sec == pytest.approx(2000.0)
        assert pool.first_images_per_sec == pytest.approx(2000.0) and not pool.cached
    assert model.alone(a_costs(), hosts(trainer_cores=16.0, storage_bytes_per_sec=50e6)).limit == "storage"


def test_a_worker_reads_its_files_before_it_makes_a_batch():
    """4 ms to make an image, and 1 ms to read its 100 KB at 100 MB/s."""
    slow = hosts(storage_bytes_per_sec=100e6)
    pool = model.pool(a_costs(), slow, "batches", [1.0])
    assert pool.limit == "workers" and pool.images_per_sec == pytest.approx(200.0)
    assert model.alone(a_costs(), slow).images_per_sec == pytest.approx(200.0)
    more = model.pool(a_costs(), slow, "batches", [1.0] * 3)  # others make meanwhile
    assert more.limit == "workers" and more.images_per_sec == pytest.approx(600.0)


@pytest.mark.parametrize(("memory_bytes", "cached"), [(0.0, False), (8e9, False), (25e9, True)])
def test_storage_limits_the_first_epoch_and_the_others_where_memory_does_not_hold_the_files(memory_bytes, cached):
    """100 GB of files, read at 200 MB/s: 2,000 images/sec. Four workers hold a quarter each, or too little."""
    fleet = hosts(**FLEET, storage_bytes_per_sec=200e6, memory_bytes=memory_bytes)
    pool = model.pool(a_costs(), fleet, "batches", [4.0, 4.0], images=1_000_000)
    assert pool.cached == cached and pool.first_images_per_sec == pytest.approx(2000.0)
    assert pool.images_per_sec == pytest.approx(4000.0 * FED if cached else 2000.0)
    assert pool.device_ratio == pytest.approx(FED if cached else 0.5)
    assert pool.limit == ("device" if cached else "storage")
