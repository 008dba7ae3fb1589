"""Two real processes on loopback: what is decoded in vain before and after the remedy, and the planted straggler."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf
from rich.console import Console

from tests.benchmarks.trainers.feeds import BATCH, DELAY_MS, SLOW_PROCESS, held_back
from tests.builders import a_measured_trainers, a_trainers_document
from tests.planted import planted
from unstall.benchmarks.lab import command
from unstall.benchmarks.trainers import processes
from unstall.benchmarks.trainers.measure import Run
from unstall.benchmarks.trainers.plan import Plan
from unstall.benchmarks.trainers.results import TrainersResult, derive
from unstall.pipeline import open_source
from unstall.profiles import clock

# A network whose steps take next to nothing.
MODEL = "tests.planted:a_model"
IMAGES = 32


@pytest.fixture
def starts_beside(beside, monkeypatch) -> Iterator[None]:
    """Has all processes start, and train their first epochs, while other tests run.

    What is measured follows alone where the test is run again.
    """
    ask, others = Run._ask, contextlib.ExitStack()

    def ask_beside(run: Run, name: str, method: str, *arguments: Any) -> list[Any]:
        if method == "start":
            others.enter_context(beside())
        else:
            others.close()
        return ask(run, name, method, *arguments)

    monkeypatch.setattr(Run, "_ask", ask_beside)
    with others:
        yield


def measured(out, *subjects: str) -> dict[str, TrainersResult]:
    asked = a_trainers_document(*(a_measured_trainers(subject) for subject in subjects)).plan
    config = dataclasses.replace(asked.config, batch_size=BATCH)
    asked = dataclasses.replace(asked, config=config, rounds=2, model=MODEL)
    plan = Plan(asked=asked, data=f"generated:{IMAGES}", model=MODEL, out=out)
    run = Run(plan, open_source(plan.data), command.progress_bar(Console(quiet=True)))
    try:
        run.measure(lambda: None)
    finally:
        run.close()
    document = run.document(complete=True)
    assert document.left_out == ()
    return {result.subject: result for result in derive(document).subjects}


@planted
@pytest.mark.long
@pytest.mark.needs("jax")
@pytest.mark.usefixtures("starts_beside")
def test_images_are_decoded_twice_before_the_remedy_and_once_after_it_and_the_slow_process_is_named(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(processes, "_SESSION", "tests.benchmarks.trainers.feeds:SlowSession")
    results = measured(tmp_path, "jax-processes", "jax-processes-sharded")
    before, after = results["jax-processes"], results["jax-processes-sharded"]
    assert [process.decoded_ratio for process in before.processes] == [2.0, 2.0]
    assert [process.decoded_ratio for process in after.processes] == [1.0, 1.0]
    for result in results.values():
        assert result.straggler is not None
        assert (result.straggler.process, result.straggler.cause) == (SLOW_PROCESS, "loading")
        waits, slow = result.processes
        assert waits.others_ratio > slow.others_ratio
    assert after.straggler is not None
    assert after.straggler.longer_ms == pytest.approx(DELAY_MS, rel=0.3)


@planted
@pytest.mark.long
@pytest.mark.needs("jax")
@pytest.mark.usefixtures("starts_beside")
def test_replicas_of_one_process_share_its_loader_and_each_image_is_decoded_once(tmp_path):
    results = measured(tmp_path, "one-tensorflow", "mirrored", "one-jax", "jax-devices")
    for result in results.values():
        assert result.decoded_ratio == 1.0
        [process] = result.processes
        assert process.others_ratio == 0 and 0 < process.loading_ratio < 1
        assert result.straggler is None
    assert [result.ratio is None for result in results.values()] == [True, False, True, False]


def test_a_planted_delay_holds_each_batch_back():
    dataset = tf.data.Dataset.from_tensors((tf.zeros((BATCH, 2)), tf.zeros((BATCH,)))).repeat(3)
    begun_ns = clock.now_ns()
    assert len(list(held_back(dataset, 20))) == 3
    assert clock.now_ns() - begun_ns >= 3 * 20_000_000
