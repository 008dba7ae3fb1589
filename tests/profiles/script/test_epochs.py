"""The sums of an epoch, with exact numbers."""

from __future__ import annotations

import random

import pytest

from tests.builders import record_of
from unstall.profiles import clock
from unstall.profiles.script.epochs import IteratorCount, Tally


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


def test_the_last_step_of_a_long_epoch_is_the_last_of_those_kept(tally):
    """A short last batch that is compiled anew takes long, and a rule looks for it there."""
    for number in range(1000):
        end_ns = 100 * number + (5000 if number == 999 else 90)
        tally.add(100 * number, 100 * number + 30, end_ns, 8, 1, traced=number == 0)
    step_ns = ended(tally).step_ns
    assert (len(step_ns), step_ns[-1], set(step_ns[:-1])) == (256, 5000, {90})


def test_the_first_steady_steps_are_kept_in_their_order_with_their_waits(tally):
    for number in range(100):
        tally.add(100 * number, 100 * number + number % 50, 100 * number + 90, 8, 1, traced=number == 3)
    kept = ended(tally).first_steps_ns
    steady = [number for number in range(2, 100) if number != 3]
    assert kept == tuple((number % 50, 90 - number % 50) for number in steady[:64])


def test_a_host_that_runs_ahead_of_its_device_keeps_no_steps(tally):
    for number in range(5):
        tally.add(100 * number, 100 * number + 30, 100 * number + 90, 8, 1, traced=False)
    tally.end_steps()
    assert tally.record(asynchronous=True).first_steps_ns == ()


def test_a_step_that_traces_is_not_steady_and_its_time_is_apart(tally):
    ends = (10, 20, 30, 140, 150)
    for number, end_ns in enumerate(ends):
        start_ns = ends[number - 1] if number else 0
        tally.add(start_ns, start_ns + 4, end_ns, 8 if number < 4 else 2, 1, traced=number == 3)
    record = ended(tally)
    assert (record.steady_steps, record.steady_images, record.steady_ns, record.steady_wait_ns) == (2, 10, 20, 8)
    assert (record.images, record.wall_ns, record.traced_ns) == (34, 150, 100)


def test_the_batch_size_is_that_of_the_largest_batch(tally):
    for number, images in enumerate((32, 32, 25)):
        tally.add(100 * number, 100 * number, 100 * number + 90, images, 1, traced=False)
    assert ended(tally).batch_size == 32


def test_an_epoch_that_was_left_is_no_whole_one(tally):
    tally.add(0, 40, 100, 8, 1, traced=False)
    tally.end_steps(whole=False)
    assert not tally.record(asynchronous=False).whole


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
    tally.read(IteratorCount(steps=4, images=64))
    tally.add_call(5_000_000, 6_000_000, 4, traced=False)
    tally.add_call(6_000_000, 7_000_000, 4, traced=False)
    tally.read(IteratorCount(steps=12, images=190))
    record = ended(tally)
    assert (record.steps, record.images, record.steady_steps, record.steady_images) == (12, 190, 8, 126)
    assert (record.steady_ns, record.steady_wait_ns) == (2_000_000, None)


def test_a_single_call_of_several_steps_stands_for_the_epoch(tally):
    tally.add_call(0, 1_000_000, 4, traced=False)
    tally.read(IteratorCount(steps=4, images=64))
    record = ended(tally)
    assert (record.steady_steps, record.steady_images, record.steady_wait_ns) == (4, 64, None)


def an_epoch(monkeypatch, *, unseen=(), gap_ns=0, hooks=True):
    """Six calls of 100 ns with hooks of 10 ns on both sides, edges of 70 and 30 ns, and 200 ns of validation.

    Args:
      unseen: numbers of calls that the watch does not see.
      gap_ns: behind the hooks of each call, what is neither.
    """
    now_ns = 0
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns)
    monkeypatch.setattr(clock, "own_cpu_ns", lambda: 0)
    tally = Tally(epoch=0, expected_steps=None, ramp_steps=2, random_=random.Random(0))

    def hook():
        nonlocal now_ns
        now_ns += 10
        if hooks:
            tally.add_hook(now_ns - 10, now_ns)

    now_ns += 70
    for number in range(6):
        hook()
        now_ns += 100
        if number not in unseen:
            hooks_ns = sum(end_ns - begin_ns for begin_ns, end_ns in tally.take_hooks())
            tally.add(now_ns - 100, now_ns - 60, now_ns, 8, 1, traced=False, hooks_ns=hooks_ns)
            tally.add_whole_call(now_ns - 100, now_ns)
        hook()
        now_ns += gap_ns
    now_ns += 30 - gap_ns
    tally.end_steps()
    now_ns += 200
    return tally.record(asynchronous=False)


def test_edges_calls_and_hooks_claim_the_whole_epoch(monkeypatch):
    record = an_epoch(monkeypatch)
    # The first hook and the last one are callbacks' and no edge.
    assert (record.outer_ns, record.claimed_ns) == (70 + 6 * 120 + 30 + 200 - 20, 1000)
    assert (record.between_ns, record.callbacks_ns) == (4 * 20, 4 * 20)
    assert (record.before_ns, record.after_ns) == (70, 30)
    assert (record.all_callbacks_ns, record.edge_callbacks_ns) == (5 * 20, 20)


@pytest.mark.parametrize("unseen", [(0,), (2, 3), (5,), (0, 5)])
def test_calls_that_the_watch_did_not_see_are_unclaimed(monkeypatch, unseen):
    record = an_epoch(monkeypatch, unseen=unseen)
    assert record.outer_ns - record.claimed_ns == 100 * len(unseen)


def test_time_that_is_neither_call_nor_hook_is_unclaimed(monkeypatch):
    record = an_epoch(monkeypatch, gap_ns=25)
    assert record.outer_ns - record.claimed_ns == 5 * 25
    assert (record.between_ns, record.callbacks_ns) == (4 * 45, 4 * 20)


def test_without_hooks_nothing_is_claimed(monkeypatch):
    record = an_epoch(monkeypatch, hooks=False)
    assert (record.callbacks_ns, record.claimed_ns) == (None, None)


def test_hooks_of_callbacks_at_the_edges_of_an_epoch_are_no_edge(monkeypatch):
    now_ns = 0
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns)
    monkeypatch.setattr(clock, "own_cpu_ns", lambda: 0)
    tally = Tally(epoch=0, expected_steps=None, ramp_steps=2, random_=random.Random(0))
    tally.leave_out(0, 500)  # on_epoch_begin
    tally.add(530, 540, 600, 8, 1, traced=False)
    now_ns = 620
    tally.end_steps()
    tally.leave_out(620, 1620)  # on_test_end
    now_ns = 1650
    record = tally.record(asynchronous=False)
    assert (record.before_ns, record.first_batch_ns, record.after_ns, record.other_ns) == (30, 40, 20, 30)
    assert record.edge_callbacks_ns == 1500


def test_parts_of_an_epoch_are_exact():
    record = record_of()
    assert record.images_per_sec == 1e8
    assert record.epoch_images_per_sec == pytest.approx(record.images / record.epoch_ns * 1e9)
    assert record.epoch_images_per_sec < record.images_per_sec
    assert record.wait_ms_per_step == 25e-6
    assert record.epoch_ns == 1200
    assert record.loading_ratio == pytest.approx(1 - 750 / 1200)


def test_the_hosts_wait_is_no_loading_ratio_where_the_device_runs_on():
    record = record_of(asynchronous=True)
    assert (record.loading_ratio, record.wait_ms_per_step) == (None, 25e-6)
