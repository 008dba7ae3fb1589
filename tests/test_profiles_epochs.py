"""The sums of an epoch, with exact numbers."""

from __future__ import annotations

import random

import pytest

from profiles import clock
from profiles.epochs import EpochRecord, Tally, Told


@pytest.fixture
def tally(monkeypatch):
    monkeypatch.setattr(clock, "now_ns", lambda: 1_000_000)
    monkeypatch.setattr(clock, "own_cpu_ns", lambda: 0)
    return Tally(epoch=0, expected_steps=None, ramp_steps=2, random_=random.Random(0))


def ended(tally):
    tally.end_steps()
    return tally.record(asynchronous=False)


def test_a_long_epoch_keeps_a_bounded_draw_of_its_steps(tally):
    for number in range(5000):
        tally.add(100 * number, 100 * number + 30, 100 * number + 90, 8, 1, traced=number == 0)
    record = ended(tally)
    assert (record.steps, record.images, record.steady_steps, len(record.step_ns)) == (5000, 40000, 4998, 256)
    assert set(record.step_ns) == {90}
    assert (record.steady_ns, record.steady_wait_ns, record.between_ns) == (499_800, 149_940, 49_980)


def test_a_step_that_traces_is_not_steady_and_its_time_is_apart(tally):
    ends = (10, 20, 30, 140, 150)
    for number, end_ns in enumerate(ends):
        start_ns = ends[number - 1] if number else 0
        tally.add(start_ns, start_ns + 4, end_ns, 8 if number < 4 else 2, 1, traced=number == 3)
    record = ended(tally)
    assert (record.steady_steps, record.steady_images, record.steady_ns, record.steady_wait_ns) == (2, 10, 20, 8)
    assert (record.images, record.wall_ns, record.traced_ns) == (34, 150, 100)


def test_a_single_step_that_did_not_trace_stands_for_the_epoch(tally):
    tally.add(0, 40, 100, 8, 1, traced=False)
    record = ended(tally)
    assert (record.steady_steps, record.steady_ns, record.steady_wait_ns, record.step_ns) == (1, 100, 40, (100,))


def test_a_single_step_that_traced_says_nothing(tally):
    tally.add(0, 40, 100, 8, 1, traced=True)
    record = ended(tally)
    assert (record.images_per_sec, record.loading_ratio, record.wait_ms_per_step) == (None, None, None)


def test_of_several_steps_a_call_the_rate_is_known_and_the_wait_is_not(tally):
    tally.add_call(0, 5_000_000, 4, traced=True)
    tally.read(Told(steps=4, images=64))
    tally.add_call(5_000_000, 6_000_000, 4, traced=False)
    tally.add_call(6_000_000, 7_000_000, 4, traced=False)
    tally.read(Told(steps=12, images=190))
    record = ended(tally)
    assert (record.steps, record.images, record.steady_steps, record.steady_images) == (12, 190, 8, 126)
    assert (record.steady_ns, record.steady_wait_ns) == (2_000_000, None)


def test_a_single_call_of_several_steps_stands_for_the_epoch(tally):
    tally.add_call(0, 1_000_000, 4, traced=False)
    tally.read(Told(steps=4, images=64))
    record = ended(tally)
    assert (record.steady_steps, record.steady_images, record.steady_wait_ns) == (4, 64, None)


def record_of(**changed):
    values = {
        "epoch": 3,
        "steps": 10,
        "images": 100,
        "steady_steps": 8,
        "steady_images": 80,
        "steady_ns": 800,
        "steady_wait_ns": 200,
        "between_ns": 0,
        "first_batch_ns": 70,
        "before_ns": 50,
        "wall_ns": 1100,
        "after_ns": 150,
        "traced_ns": 100,
        "other_ns": 999,
        "cpu_ns": 1,
        "step_ns": (100,) * 8,
        "asynchronous": False,
    }
    return EpochRecord(**{**values, **changed})


def test_parts_of_an_epoch_are_exact():
    record = record_of()
    assert record.images_per_sec == 1e8
    assert record.wait_ms_per_step == 25e-6
    assert record.epoch_ns == 1200
    assert record.loading_ratio == pytest.approx(1 - 750 / 1200)


def test_the_hosts_wait_is_no_loading_ratio_where_the_device_runs_on():
    record = record_of(asynchronous=True)
    assert (record.loading_ratio, record.wait_ms_per_step) == (None, 25e-6)
