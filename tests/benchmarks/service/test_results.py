"""What is derived of planted windows: rates, what processes spend, and what limits a service."""

from __future__ import annotations

import dataclasses

import pytest

from tests.builders import a_measured_service, a_service_document, a_worker_window
from unstall.benchmarks.service.results import CAUSES, ServiceResult, cause_of, derive

# Signs of a service in which nothing is full and workers idle.
IDLE = {
    "wait_ratio": 0.5,
    "end_ratio": 0.1,
    "link_ratio": 0.5,
    "client_ratio": 0.5,
    "host_ratios": (0.5,),
    "split_ratio": 0.1,
}
# What tells each cause, in the order in which `cause_of` asks.
SIGNS = {
    "fed": {"wait_ratio": 0.04},
    "epoch end": {"end_ratio": 0.26},
    "network": {"link_ratio": 0.85},
    "receive": {"client_ratio": 0.85},
    "starved": {"host_ratios": (0.85,)},
    "split wait": {"split_ratio": 0.25},
    "workers idle": {},
}


def results_of(*subjects, **asked) -> dict[str, ServiceResult]:
    document = a_service_document(*subjects)
    document = dataclasses.replace(document, plan=dataclasses.replace(document.plan, **asked))
    return {result.service: result for result in derive(document).subjects}


# What limits a service


def test_every_cause_has_a_sign():
    assert set(SIGNS) == set(CAUSES)


@pytest.mark.parametrize("cause", SIGNS)
def test_a_sign_tells_its_cause(cause):
    assert cause_of(**(IDLE | SIGNS[cause])) == cause


@pytest.mark.parametrize("cause", SIGNS)
def test_an_earlier_cause_explains_all_later_signs(cause):
    causes = list(SIGNS)
    later = {name: value for other in causes[causes.index(cause) :] for name, value in SIGNS[other].items()}
    assert cause_of(**(IDLE | later)) == cause


@pytest.mark.parametrize(
    "signs",
    [
        {"wait_ratio": 0.05, "end_ratio": 0.0},
        {"end_ratio": 0.25},
        {"link_ratio": 0.84},
        {"link_ratio": None},
        {"client_ratio": 0.84},
        {"host_ratios": (0.84,)},
        {"host_ratios": ()},
        {"split_ratio": 0.24},
    ],
)
def test_below_its_bound_a_sign_tells_nothing(signs):
    assert cause_of(**(IDLE | signs)) == "workers idle"


def test_a_single_full_host_of_three_does_not_starve_a_service():
    assert cause_of(**(IDLE | {"host_ratios": (1.0, 0.5, 0.4)})) == "workers idle"
    assert cause_of(**(IDLE | {"host_ratios": (1.0, 0.9, 0.4)})) == "starved"


# A comparison


def test_a_rate_is_the_geometric_mean_and_its_ratio_is_over_the_threads():
    results = results_of(a_measured_service("none", 1000.0), a_measured_service("local:2", 2000.0))
    assert results["local:2"].images_per_sec == pytest.approx((2000 * 2200 * 1800) ** (1 / 3))
    assert results["local:2"].ratio == pytest.approx(2.0)
    assert results["local:2"].interval == pytest.approx((2.0, 2.0))
    assert (results["none"].ratio, results["none"].cause) == (pytest.approx(1.0), "")


def test_without_threads_there_is_no_ratio():
    result = results_of(a_measured_service("local:2", 2000.0))["local:2"]
    assert (result.ratio, result.interval) == (None, None)


def test_a_ratio_is_of_the_rounds_that_both_have():
    threads = a_measured_service("none", 1000.0)
    threads = dataclasses.replace(threads, windows=threads.windows[1:])
    faster = a_measured_service("local:2", 2000.0)
    first = dataclasses.replace(faster.windows[0], images=9000)  # a round that the threads do not have
    faster = dataclasses.replace(faster, windows=(first, *faster.windows[1:]))
    result = results_of(threads, faster)["local:2"]
    assert (result.ratio, result.interval) == (pytest.approx(2.0), None)


def test_a_subject_without_a_window_has_no_result():
    started = dataclasses.replace(a_measured_service("local:2", 2000.0), windows=())
    assert list(results_of(a_measured_service("none", 1000.0), started)) == ["none"]


def test_the_clients_cpu_time_is_counted_by_image_and_by_megabyte():
    # 0.6 s for 6000 images of 10,000 bytes.
    result = results_of(a_measured_service("local:2", 2000.0, client_cpu_ns=200_000_000))["local:2"]
    assert result.client_us_per_image == pytest.approx(100.0)
    assert result.client_ms_per_megabyte == pytest.approx(10.0)


def test_threads_receive_nothing():
    result = results_of(a_measured_service("none", 1000.0), link_bytes_per_sec=1.0)["none"]
    assert (result.client_ms_per_megabyte, result.link_ratio) == (None, None)


def test_waiting_is_a_share_of_the_time():
    service = a_measured_service("local:2", 2000.0, wait_ns=400_000_000, end_wait_ns=300_000_000)
    result = results_of(service)["local:2"]
    assert (result.wait_ratio, result.end_ratio) == (pytest.approx(0.4), pytest.approx(0.3))
    assert result.cause == "epoch end"


def test_a_link_is_full_of_what_is_received():
    service = a_measured_service("trainer:5050", 2000.0)  # 20 MB a second
    assert results_of(service)["trainer:5050"].link_ratio is None
    wide = results_of(service, link_bytes_per_sec=80e6)["trainer:5050"]
    assert (wide.link_ratio, wide.cause) == (pytest.approx(0.25), "workers idle")
    narrow = results_of(service, link_bytes_per_sec=21e6)["trainer:5050"]
    assert (narrow.link_ratio, narrow.cause) == (pytest.approx(20 / 21), "network")


def test_a_client_whose_cores_are_full_is_the_limit():
    # Of two cores 1.8.
    assert results_of(a_measured_service("local:1", 2000.0, client_cpu_ns=1_800_000_000))["local:1"].cause == "receive"


def test_workers_of_this_host_are_starved_by_all_of_its_processes():
    # The two workers use 0.8 of four cores; all processes together 1.8 of the two.
    workers = [a_worker_window(f"host:{number}", 1000) for number in (1, 2)]
    for name in ("local:2", "localhost:5050"):
        service = a_measured_service(name, 2000.0, workers=workers, machine_cpu_ns=1_800_000_000)
        assert results_of(service)[name].cause == "starved"


def test_workers_of_another_host_are_starved_by_each_other():
    # Each uses 0.9 of its host's two cores, and this host is full of something else.
    workers = [a_worker_window(f"far:{number}", 1000, cpu_ns=900_000_000) for number in (1, 2)]
    service = a_measured_service("trainer:5050", 2000.0, workers=workers, machine_cpu_ns=2 * 10**9)
    assert results_of(service)["trainer:5050"].cause == "starved"
    apart = [a_worker_window(f"host-{number}:7", 1000, cpu_ns=900_000_000) for number in (1, 2)]
    service = a_measured_service("trainer:5050", 2000.0, workers=apart, machine_cpu_ns=2 * 10**9)
    assert results_of(service)["trainer:5050"].cause == "workers idle"


def test_workers_that_wait_for_chunks_say_so():
    workers = [a_worker_window(f"host:{number}", 1000, split_wait_ns=300_000_000) for number in (1, 2)]
    result = results_of(a_measured_service("local:2", 2000.0, workers=workers))["local:2"]
    assert [worker.split_wait_ratio for worker in result.workers] == pytest.approx([0.3, 0.3])
    assert result.cause == "split wait"


def test_a_workers_account_is_counted_from_its_first_batch_in_the_window():
    workers = [a_worker_window("host:1", 2000, cpu_ns=800_000_000, wall_ns=500_000_000, split_wait_ns=50_000_000)]
    [worker] = results_of(a_measured_service("local:1", 2000.0, workers=workers))["local:1"].workers
    assert worker.images_per_sec == pytest.approx(4000.0)  # of half a second, from its first account to its last
    assert worker.cpu_us_per_image == pytest.approx(400.0)
    assert worker.cpu_ms_per_megabyte == pytest.approx(40.0)
    assert worker.busy_ratio == pytest.approx(0.8)  # 0.8 s in half a second of two cores
    assert worker.split_wait_ratio == pytest.approx(0.1)
    assert worker.costs_us == {"read": 20.0, "decode": 700.0, "all": 900.0}


def test_a_worker_that_came_in_the_middle_has_no_costs_and_the_rate_of_its_own_time():
    service = a_measured_service("trainer:5050", 2000.0)
    late = dataclasses.replace(service.windows[2], workers=(a_worker_window("host:9", 1500),))
    service = dataclasses.replace(service, windows=(*service.windows[:2], late))
    [worker] = results_of(service)["trainer:5050"].workers
    assert (worker.worker, worker.costs_us) == ("host:9", {})
    assert worker.images_per_sec == pytest.approx(1500.0)


def test_a_worker_with_much_less_than_the_others_rate_is_slow():
    workers = [a_worker_window(f"host:{number}", images) for number, images in enumerate((1000, 900, 600, 630))]
    result = results_of(a_measured_service("local:4", 3130.0, workers=workers))["local:4"]
    # 0.67 of the median of the others: of 900 for the last two, of 630 for the first two.
    assert [worker.worker for worker in result.workers if worker.slow] == ["host:2"]


def test_a_single_worker_is_not_slow():
    workers = [a_worker_window("host:1", 1)]
    [worker] = results_of(a_measured_service("local:1", 2000.0, workers=workers))["local:1"].workers
    assert not worker.slow


def test_batches_are_added_up_over_the_windows():
    service = a_measured_service("local:2", 2000.0, batches=50, served=48, repaired=2, twice=1)
    result = results_of(service)["local:2"]
    assert (result.batches, result.served, result.repaired, result.twice) == (150, 144, 6, 3)


def test_a_row_has_the_interval_as_two_numbers():
    results = results_of(a_measured_service("none", 1000.0), a_measured_service("local:2", 2000.0))
    row = results["local:2"].to_dict()
    assert (row["ratio_low"], row["ratio_high"]) == pytest.approx((2.0, 2.0)) and "interval" not in row
    assert results_of(a_measured_service("local:2", 2000.0))["local:2"].to_dict()["ratio_low"] is None
