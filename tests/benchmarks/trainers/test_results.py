"""What is derived from planted epochs: rates, what was decoded in vain, who waits for whom, and the straggler."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import MS, a_measured_trainers, a_process_epoch, a_trainers_document
from unstall.benchmarks.trainers.results import CAUSES, derive, straggler_of
from unstall.benchmarks.trainers.samples import ProcessEpoch


def rounds_of(*epochs: ProcessEpoch, rounds: int = 3) -> list[list[ProcessEpoch]]:
    return [[replace(epoch, round=number, process=at) for at, epoch in enumerate(epochs)] for number in range(rounds)]


def result_of(*epochs: ProcessEpoch, subject: str = "jax-processes"):
    measured = tuple(replace(epoch, subject=subject) for each in rounds_of(*epochs) for epoch in each)
    [result] = derive(a_trainers_document(measured)).subjects
    return result


def a_waiting_epoch(**changes) -> ProcessEpoch:
    """Its batches lie ready, and its steps take as long as the other process needs."""
    return a_process_epoch(wait_ns=(0,) * 4, step_ns=(100 * MS,) * 4, **changes)


def test_the_rate_is_that_of_all_processes_until_the_last_one_has_ended():
    result = result_of(a_process_epoch(wall_ns=400 * MS), a_process_epoch(wall_ns=500 * MS))
    assert result.images_per_sec == pytest.approx(80 / 0.5)


def test_several_trainers_are_compared_with_one_on_the_same_backend():
    document = a_trainers_document(
        a_measured_trainers("one-tensorflow", wall_ns=100 * MS),
        a_measured_trainers("one-jax"),
        a_measured_trainers("jax-processes", 2),
    )
    by_name = {result.subject: result for result in derive(document).subjects}
    assert by_name["jax-processes"].ratio == pytest.approx(2.0)
    assert by_name["jax-processes"].interval == pytest.approx((2.0, 2.0))
    assert (by_name["jax-processes"].trainers, by_name["one-jax"].trainers) == (2, 1)
    assert by_name["one-jax"].ratio is None and by_name["one-tensorflow"].ratio is None


def test_without_the_one_trainer_there_is_no_ratio():
    assert result_of(a_process_epoch(), a_process_epoch()).ratio is None


def test_a_subject_of_which_nothing_was_measured_has_no_result():
    document = a_trainers_document(a_measured_trainers("jax-processes"))
    document = replace(document, plan=replace(document.plan, subjects=("one-jax", "jax-processes")))
    assert [result.subject for result in derive(document).subjects] == ["jax-processes"]


def test_what_each_process_decoded_is_compared_with_what_it_trained_on():
    result = result_of(a_process_epoch(decoded=80), a_process_epoch(decoded=40))
    assert [process.decoded_ratio for process in result.processes] == [2.0, 1.0]
    assert result.decoded_ratio == 1.5


def test_the_shares_of_a_process_are_of_its_whole_epoch():
    result = result_of(a_process_epoch(wall_ns=500 * MS), a_waiting_epoch(wall_ns=500 * MS))
    loads, waits = result.processes
    assert (loads.loading_ratio, waits.loading_ratio) == (pytest.approx(80 / 500), 0)
    assert (loads.others_ratio, waits.others_ratio) == (0, pytest.approx(80 / 500))


def test_results_come_in_the_order_of_the_plan_whatever_was_measured_first():
    document = a_trainers_document(a_measured_trainers("one-jax"), a_measured_trainers("jax-processes", 2))
    mixed = replace(document, samples=replace(document.samples, epochs=document.samples.epochs[::-1]))
    assert derive(mixed) == derive(document)


def test_a_process_waits_in_each_step_for_the_one_that_comes_last_in_it():
    one = a_process_epoch(step_ns=(80 * MS, 20 * MS, 80 * MS, 20 * MS))
    other = a_process_epoch(step_ns=(20 * MS, 80 * MS, 20 * MS, 80 * MS))
    assert [process.others_ratio for process in result_of(one, other).processes] == [pytest.approx(0.3)] * 2


def test_a_slow_loader_is_the_straggler_and_not_the_process_that_waits_for_it():
    straggler = straggler_of(rounds_of(a_waiting_epoch(), a_process_epoch()))
    assert straggler is not None
    assert (straggler.process, straggler.cause) == (1, "loading")
    assert straggler.longer_ms == pytest.approx(20)
    assert straggler.step_ratio == pytest.approx(0.2)


def test_a_slow_device_is_the_straggler_though_all_steps_take_as_long():
    straggler = straggler_of(rounds_of(a_process_epoch(alone_ns=75 * MS), a_process_epoch(), a_process_epoch()))
    assert straggler is not None
    assert (straggler.process, straggler.cause) == (0, "alone")
    assert straggler.longer_ms == pytest.approx(25)


def test_a_slow_callback_is_the_straggler():
    slow = a_process_epoch(wait_ns=(0,) * 4, step_ns=(50 * MS,) * 4)
    straggler = straggler_of(rounds_of(slow, a_waiting_epoch()))
    assert straggler is not None
    assert (straggler.process, straggler.cause) == (0, "between")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_processes_that_do_the_same_have_no_straggler(count):
    assert straggler_of(rounds_of(*[a_process_epoch()] * count)) is None


def test_a_process_that_is_late_in_some_rounds_only_is_none():
    first, *rest = rounds_of(a_waiting_epoch(), a_process_epoch())
    swapped = [replace(epoch, process=at) for at, epoch in enumerate(reversed(first))]
    assert straggler_of([swapped, *rest]) is None


def test_a_process_that_is_a_little_late_is_none():
    assert straggler_of(rounds_of(a_process_epoch(), a_process_epoch(alone_ns=59 * MS))) is None
    assert straggler_of(rounds_of(a_process_epoch(), a_process_epoch(alone_ns=61 * MS))) is not None


def test_without_a_step_alone_nobody_is_named():
    assert straggler_of(rounds_of(a_waiting_epoch(), a_process_epoch(alone_ns=None))) is None


def test_every_cause_has_its_words():
    assert set(CAUSES) == {"loading", "alone", "between"}
