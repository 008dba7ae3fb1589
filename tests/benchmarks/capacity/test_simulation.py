"""A simulation of what is known: each part in turn is the slowest, and hosts wait for each other."""

from __future__ import annotations

import dataclasses

import pytest

from unstall.benchmarks.capacity.simulation import Simulated, SimulatedHost, simulate

# Everything takes a microsecond, but for what a test slows down.
HOST = SimulatedHost(devices=1, worker_s=(1e-6,), link_s=1e-6, trainer_s=1e-6)
# The time to make a batch is drawn: of 300 batches, the mean is off by half a percent.
NEAR = 0.02


def a_host(**changes) -> SimulatedHost:
    return dataclasses.replace(HOST, **changes)


def simulated(*hosts: SimulatedHost, steps: int = 300, step_s: float = 1e-6, hand_over_s: float = 0.0, **more: float):
    return simulate(hosts, step_s=step_s, hand_over_s=hand_over_s, steps=steps, **more)


def rate_of(*hosts: SimulatedHost, **changes: float) -> float:
    return simulated(*hosts, **changes).steps_per_sec


def test_a_slow_worker_sets_the_rate():
    assert rate_of(a_host(worker_s=(0.1,))) == pytest.approx(10, rel=NEAR)


def test_workers_add_up_even_where_they_are_unequal():
    assert rate_of(a_host(worker_s=(0.1,) * 3)) == pytest.approx(30, rel=NEAR)
    assert rate_of(a_host(worker_s=(0.1, 0.025))) == pytest.approx(50, rel=NEAR)


def test_a_slow_link_sets_the_rate():
    assert rate_of(a_host(link_s=0.1)) == pytest.approx(10)
    assert rate_of(a_host(link_s=0.1, worker_s=(1e-6,) * 5)) == pytest.approx(10)


def test_a_slow_trainer_sets_the_rate():
    assert rate_of(a_host(trainer_s=0.1)) == pytest.approx(10)


def test_a_device_that_is_fed_waits_only_for_the_hand_over():
    result = simulated(a_host(), step_s=0.1, hand_over_s=0.025)
    assert result.steps_per_sec == pytest.approx(8) and result.device_ratio == pytest.approx(0.8)


def test_a_device_is_used_as_far_as_batches_come():
    result = simulated(a_host(link_s=0.4), step_s=0.1)
    assert result.device_ratio == pytest.approx(0.25)


def test_loading_and_training_overlap():
    """A step of 100 ms and a link of 90 ms are 100 ms, not 190."""
    assert rate_of(a_host(link_s=0.09), step_s=0.1) == pytest.approx(10)


def test_a_step_takes_a_batch_for_each_device():
    assert rate_of(a_host(link_s=0.01, devices=4)) == pytest.approx(25)


def test_hosts_in_lock_step_run_at_the_slowest_hosts_rate():
    slow, fast = a_host(link_s=0.1), a_host(link_s=0.02)
    assert rate_of(fast, slow) == pytest.approx(rate_of(slow)) == pytest.approx(10)
    assert rate_of(fast) == pytest.approx(50)


def test_hosts_whose_workers_vary_wait_for_each_other():
    """Each alone makes ten steps a second; together they take the slower batch of the two at each step."""
    alone = rate_of(a_host(worker_s=(0.1,)))
    assert 0.85 * alone < rate_of(*[a_host(worker_s=(0.1,))] * 8) < alone


def test_storage_is_shared_by_all_hosts():
    assert rate_of(a_host(), storage_s=0.01) == pytest.approx(100, rel=NEAR)
    assert rate_of(*[a_host()] * 4, storage_s=0.01) == pytest.approx(25, rel=NEAR)
    assert rate_of(*[a_host(devices=2)] * 4, storage_s=0.01) == pytest.approx(12.5, rel=NEAR)


def test_the_same_simulation_gives_the_same_result():
    hosts = [a_host(worker_s=(0.1, 0.2), link_s=0.03, devices=2)] * 3
    first, again = (simulated(*hosts, steps=100, step_s=0.05) for _ in range(2))
    assert isinstance(first, Simulated) and first == again


def test_the_first_steps_are_not_counted():
    """Batches that lie ready before the first step make it no faster."""
    few, many = (rate_of(a_host(link_s=0.1), steps=steps) for steps in (1, 100))
    assert few == pytest.approx(many)
