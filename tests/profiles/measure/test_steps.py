"""The steps of an epoch: what they sum to, and which of them are steady, with exact numbers."""

from __future__ import annotations

import random

import pytest

from tests.builders import record_of
from unstall.profiles import clock
from unstall.profiles.measure.ahead import Ahead
from unstall.profiles.measure.epochs import sample_of
from unstall.profiles.measure.steps import Epoch, Steady, Step, TimedEpoch, steady_part
from unstall.profiles.measure.sums import IteratorCount


def watched_epoch():
    return Epoch(number=0, steady=steady_part(Ahead()), random_=random.Random(0))


@pytest.fixture
def epoch(monkeypatch):
    monkeypatch.setattr(clock, "now_ns", lambda: 1_000_000)
    monkeypatch.setattr(clock, "own_cpu_ns", lambda: 0)
    return watched_epoch()


def a_step(asked_ns, fetched_ns, done_ns, images=8, **changed):
    return Step(asked_ns=asked_ns, fetched_ns=fetched_ns, done_ns=done_ns, images=images, **changed)


def ended(epoch):
    epoch.end_steps()
    return epoch.record()


def test_a_long_epoch_keeps_a_bounded_draw_of_its_steps(epoch):
    for number in range(5000):
        epoch.add(a_step(100 * number, 100 * number + 30, 100 * number + 90, traced=number == 0))
    record = ended(epoch)
    assert (record.steps, record.images, record.steady_steps, len(record.step_ns)) == (5000, 40000, 4998, 256)
    assert set(record.step_ns) == {90}
    assert (record.steady_ns, record.steady_wait_ns, record.between_ns) == (499_800, 149_940, 49_980)


def test_the_last_step_of_a_long_epoch_is_the_last_of_those_kept(epoch):
    """A short last batch that is compiled anew takes long, and a rule looks for it there."""
    for number in range(1000):
        end_ns = 100 * number + (5000 if number == 999 else 90)
        epoch.add(a_step(100 * number, 100 * number + 30, end_ns, traced=number == 0))
    step_ns = ended(epoch).step_ns
    assert (len(step_ns), step_ns[-1], set(step_ns[:-1])) == (256, 5000, {90})


def test_the_first_steady_steps_are_kept_in_their_order_with_their_waits(epoch):
    for number in range(100):
        epoch.add(a_step(100 * number, 100 * number + number % 50, 100 * number + 90, traced=number == 3))
    kept = ended(epoch).first_steps_ns
    steady = [number for number in range(2, 100) if number != 3]
    assert kept == tuple((number % 50, 90 - number % 50) for number in steady[:64])


def test_a_host_that_runs_ahead_of_its_device_keeps_no_steps(epoch):
    for number in range(5):
        epoch.add(a_step(100 * number, 100 * number + 30, 100 * number + 90))
    epoch.end_steps()
    assert epoch.record(asynchronous=True).first_steps_ns == ()


def test_a_step_that_traces_is_not_steady_and_its_time_is_apart(epoch):
    ends = (10, 20, 30, 140, 150)
    for number, end_ns in enumerate(ends):
        start_ns = ends[number - 1] if number else 0
        epoch.add(a_step(start_ns, start_ns + 4, end_ns, 8 if number < 4 else 2, traced=number == 3))
    record = ended(epoch)
    assert (record.steady_steps, record.steady_images, record.steady_ns, record.steady_wait_ns) == (2, 10, 20, 8)
    assert (record.images, record.wall_ns, record.traced_ns) == (34, 150, 100)


def test_the_batch_size_is_that_of_the_largest_batch(epoch):
    for number, images in enumerate((32, 32, 25)):
        epoch.add(a_step(100 * number, 100 * number, 100 * number + 90, images))
    assert ended(epoch).batch_size == 32


def test_an_epoch_that_was_left_is_no_whole_one(epoch):
    epoch.add(a_step(0, 40, 100))
    epoch.end_steps(whole=False)
    assert not epoch.record().whole


def test_a_single_step_that_did_not_trace_stands_for_the_epoch(epoch):
    epoch.add(a_step(0, 40, 100))
    record = ended(epoch)
    assert (record.steady_steps, record.steady_ns, record.steady_wait_ns, record.step_ns) == (1, 100, 40, (100,))


def test_a_single_step_that_traced_says_nothing(epoch):
    epoch.add(a_step(0, 40, 100, traced=True))
    record = ended(epoch)
    assert (record.images_per_sec, record.loading_ratio, record.wait_ms_per_step) == (None, None, None)


def test_of_several_steps_a_call_the_rate_is_known_and_the_wait_is_not(epoch):
    epoch.add(a_step(0, None, 5_000_000, None, steps=4, traced=True))
    epoch.read(IteratorCount(steps=4, images=64))
    epoch.add(a_step(5_000_000, None, 6_000_000, None, steps=4))
    epoch.add(a_step(6_000_000, None, 7_000_000, None, steps=4))
    epoch.read(IteratorCount(steps=12, images=190))
    record = ended(epoch)
    assert (record.steps, record.images, record.steady_steps, record.steady_images) == (12, 190, 8, 126)
    assert (record.steady_ns, record.steady_wait_ns) == (2_000_000, None)


def test_a_single_call_of_several_steps_stands_for_the_epoch(epoch):
    epoch.add(a_step(0, None, 1_000_000, None, steps=4))
    epoch.read(IteratorCount(steps=4, images=64))
    record = ended(epoch)
    assert (record.steady_steps, record.steady_images, record.steady_wait_ns) == (4, 64, None)


def an_epoch(monkeypatch, *, unseen=(), gap_ns=0, hooks=True):
    """Six calls of 100 ns with hooks of 10 ns on both sides, edges of 70 and 30 ns, and 200 ns of validation.

    Args:
      unseen: numbers of calls that the watch does not see.
      gap_ns: after the hooks of each call, what is neither.
    """
    now_ns = 0
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns)
    monkeypatch.setattr(clock, "own_cpu_ns", lambda: 0)
    epoch = watched_epoch()

    def hook():
        nonlocal now_ns
        now_ns += 10
        if hooks:
            epoch.add_hook(now_ns - 10, now_ns)

    now_ns += 70
    for number in range(6):
        hook()
        now_ns += 100
        if number not in unseen:
            epoch.add(a_step(now_ns - 100, now_ns - 60, now_ns, hooks=epoch.take_hooks()))
            epoch.add_whole_call(now_ns - 100, now_ns)
        hook()
        now_ns += gap_ns
    now_ns += 30 - gap_ns
    epoch.end_steps()
    now_ns += 200
    return epoch.record()


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
    epoch = watched_epoch()
    epoch.leave_out(0, 500)  # on_epoch_begin
    epoch.add(a_step(530, 540, 600))
    now_ns = 620
    epoch.end_steps()
    epoch.leave_out(620, 1620)  # on_test_end
    now_ns = 1650
    record = epoch.record()
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


@pytest.mark.parametrize(
    ("free_ns", "wait_ns", "hooks_ns"),
    [
        (None, 30, 10),  # the first step: the device was idle
        (70, 30, 10),  # idle before the hooks
        (85, 30, 5),  # idle from the middle of the hook on
        (110, 20, 0),  # idle from the middle of the wait on
        (150, 0, 0),  # still computing when the batch came
    ],
)
def test_only_what_the_host_does_while_the_device_is_idle_counts(
    free_ns: int | None, wait_ns: int, hooks_ns: int
) -> None:
    step = a_step(100, 130, 135, hooks=((80, 90),)).on_device(free_ns, 200)
    assert (step.wait_ns, step.hooks_ns, step.done_ns) == (wait_ns, hooks_ns, 200)


def test_steps_and_waits_and_hooks_fill_the_time_of_the_device() -> None:
    """A host that takes 10 for hooks, 20 for a batch and 1 to hand over, and a device that takes 25."""
    free_ns: int | None = None
    sums = [0, 0, 0]
    for number in range(10):
        begin_ns = 31 * number
        host_step = a_step(begin_ns + 10, begin_ns + 30, begin_ns + 31, hooks=((begin_ns, begin_ns + 10),))
        step = host_step.on_device(free_ns, begin_ns + 30 + 25)
        for place, value in enumerate((step.wait_ns, step.hooks_ns, step.own_ns)):
            sums[place] += value
        free_ns = step.done_ns
    # Every step but the first finds the device busy with the step before: for 24 of the 31, so that 6 of waiting show.
    assert sums == [20 + 9 * 6, 10, 10 * 25]
    assert free_ns == sum(sums)


@pytest.mark.parametrize(
    ("parallel", "batches", "ramp_steps"),
    [(1, 1, 1), (1, 24, 1), (4, 12, 4), (4, 14, 6), (4, 8, 4), (16, 48, 16), (16, 32, 16)],
)
def test_steady_steps_are_a_multiple_of_the_batches_that_are_made_at_once(
    parallel: int, batches: int, ramp_steps: int
) -> None:
    steady = steady_part(Ahead(parallel_batches=parallel), batches)
    assert steady == Steady(first=ramp_steps, end=batches)


@pytest.mark.parametrize("batches", [7, 16, 24, 31])
def test_an_epoch_without_a_steady_part_is_said_to_have_none(batches: int) -> None:
    steady = steady_part(Ahead(parallel_batches=16), batches)
    (doubt,) = steady.doubts
    assert (steady.first, steady.end) == (0, batches)
    assert str(doubt).startswith(
        f"short: the loader makes up to 16 batches at the same time, and an epoch has {batches}:"
    )


@pytest.mark.parametrize(("shuffled", "held"), [(5, 5), (12, 12), (1000, 24)])
def test_a_shuffle_that_holds_much_of_an_epoch_leaves_no_steady_part(shuffled: int, held: int) -> None:
    steady = steady_part(Ahead(shuffled_batches=shuffled), 24)
    (doubt,) = steady.doubts
    assert (steady.first, steady.end) == (0, 24)
    assert str(doubt).startswith(f"buffered: a shuffle holds up to {held} of an epoch's 24 batches, ")
    assert steady_part(Ahead(shuffled_batches=4), 24) == Steady(first=1, end=24)


@pytest.mark.parametrize(("workers", "ramp_steps"), [(0, 2), (1, 2), (2, 2), (4, 4)])
def test_of_an_epoch_whose_length_is_not_known_two_steps_or_one_of_each_worker_are_left_out(workers, ramp_steps):
    assert steady_part(Ahead(parallel_batches=workers)) == Steady(first=ramp_steps)


@pytest.mark.parametrize(
    ("parallel", "buffered", "batches", "first", "end"),
    [
        (2, 4, 24, 2, 20),
        (2, 4, 23, 3, 19),
        (4, 8, 24, 4, 16),
        (4, 8, 12, 4, 8),  # one turn of all that are made at once is left
        (2, 4, 5, 2, 4),
        (2, 4, 3, 0, 3),
        (1, 2, 24, 1, 22),
        (1, 0, 24, 1, 24),
        (1, 2, 1, 1, 1),
    ],
)
def test_batches_that_lie_ready_at_the_end_may_be_left_out(parallel, buffered, batches, first, end):
    steady = steady_part(Ahead(parallel_batches=parallel, buffered_batches=buffered), batches, tail=False)
    assert (steady.first, steady.end) == (first, end)
    assert steady_part(Ahead(parallel_batches=parallel, buffered_batches=buffered), batches).end == batches


def of_a_window(steady, *, steps=6, resumes_at=None):
    """An epoch of steps of 100 ns, 30 of them waiting, that begins at 1000; before step n is a pause of n ns."""
    epoch, now_ns = TimedEpoch(begin_ns=1000), 1000
    for number in range(steps):
        now_ns += number
        epoch.steps.append(a_step(now_ns, now_ns + 30, now_ns + 100, resumes=number == resumes_at))
        now_ns += 100
    epoch.end_ns = now_ns + 7
    return epoch.record(steady)


def test_each_steady_step_counts_with_the_pause_before_it():
    record = of_a_window(Steady(first=2))
    assert (record.steady_steps, record.steady_images, record.steady_wait_ns) == (4, 32, 120)
    assert (record.steady_ns, record.between_ns) == (400 + 2 + 3 + 4 + 5, 2 + 3 + 4 + 5)
    assert (record.before_ns, record.after_ns, record.outer_ns) == (0, 7, 600 + 15 + 7)


@pytest.mark.parametrize(("first", "resumes_at"), [(0, None), (2, 2)])
def test_the_mean_of_the_known_pauses_stands_for_one_that_is_not_known(first, resumes_at):
    """Nobody knows the pause before an epoch's first step, nor one in which the device was waited for."""
    record = of_a_window(Steady(first=first), resumes_at=resumes_at)
    pauses_ns = list(range(first + 1, 6))
    assert record.steady_ns == 100 * (6 - first) + sum(pauses_ns) + sum(pauses_ns) // len(pauses_ns)


@pytest.mark.parametrize(("first", "end", "kept"), [(2, 5, 3), (6, None, 1), (4, 3, 1), (9, 1, 1)])
def test_an_epoch_without_a_steady_step_keeps_its_last_one_before(first, end, kept):
    record = of_a_window(Steady(first=first, end=end))
    assert (record.steady_steps, len(record.step_ns), len(record.first_steps_ns)) == (kept, kept, kept)
    assert kept > 1 or (record.steady_ns, record.steady_wait_ns) == (100, 30)
    assert record.images == 48


def test_a_sample_is_the_sum_of_its_epochs():
    records = [of_a_window(Steady(first=2)), of_a_window(Steady(first=2), steps=5)]
    sample = sample_of(records, window="train", round_=3, epoch_ns=1300, outer_ns=1400, cpu_ns=5, canary_ns=6)
    assert (sample.images, sample.wall_ns, sample.wait_ns) == (56, 414 + 309, 210)
    assert (sample.epochs, sample.epoch_images, sample.first_batch_ns) == (2, 88, (30, 30))
    assert (sample.step_ns, sample.first_steps_ns) == ((100,) * 7, ((30, 70),) * 4)
    assert (sample.round, sample.epoch_ns, sample.outer_ns, sample.cpu_ns, sample.canary_ns) == (3, 1300, 1400, 5, 6)
