"""Two real processes on loopback: what is decoded in vain before and after the remedy, and the planted straggler."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import pytest
from rich.console import Console

from tests.builders import a_measured_trainers, a_trainers_document
from tests.planted import planted
from unstall.benchmarks.lab import command
from unstall.benchmarks.trainers.measure import Run
from unstall.benchmarks.trainers.plan import Plan, Planted
from unstall.benchmarks.trainers.results import TrainersResult, derive
from unstall.pipeline import open_source

pytestmark = [pytest.mark.long, pytest.mark.needs("jax")]
# A network whose steps take next to nothing.
MODEL = "tests.planted:a_model"
IMAGES, BATCH, DELAY_MS = 32, 4, 100


@pytest.fixture(autouse=True)
def starts_beside(beside, monkeypatch) -> Iterator[None]:
    """Has all processes start, and train their first epochs, while other tests run.

    What is measured follows alone where the test is run again.
    """
    start, epoch, others = Run._start, Run._epoch, contextlib.ExitStack()

    def start_beside(run: Run, name: str) -> None:
        others.enter_context(beside())
        start(run, name)

    def epoch_alone(run: Run, name: str, number: int) -> None:
        others.close()
        epoch(run, name, number)

    monkeypatch.setattr(Run, "_start", start_beside)
    monkeypatch.setattr(Run, "_epoch", epoch_alone)
    with others:
        yield


def measured(out, *subjects: str, delay: Planted | None = None) -> dict[str, TrainersResult]:
    asked = a_trainers_document(*(a_measured_trainers(subject) for subject in subjects)).plan
    config = dataclasses.replace(asked.config, batch_size=BATCH)
    asked = dataclasses.replace(asked, config=config, rounds=2, planted=delay, model=MODEL)
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
def test_images_are_decoded_twice_before_the_remedy_and_once_after_it_and_the_slow_process_is_named(tmp_path):
    results = measured(tmp_path, "jax-processes", "jax-processes-sharded", delay=Planted(process=1, delay_ms=DELAY_MS))
    before, after = results["jax-processes"], results["jax-processes-sharded"]
    assert [process.decoded_ratio for process in before.processes] == [2.0, 2.0]
    assert [process.decoded_ratio for process in after.processes] == [1.0, 1.0]
    for result in results.values():
        assert result.straggler is not None
        assert (result.straggler.process, result.straggler.cause) == (1, "loading")
        waits, slow = result.processes
        assert waits.others_ratio > slow.others_ratio
    assert after.straggler is not None
    assert after.straggler.longer_ms == pytest.approx(DELAY_MS, rel=0.3)


@planted
def test_replicas_of_one_process_are_timed_and_each_image_is_decoded_once(tmp_path):
    result = measured(tmp_path, "mirrored")["mirrored"]
    assert result.decoded_ratio == 1.0
    assert len(result.replicas) == 2
    for replica in result.replicas:
        steps = (replica.loading_ratio, replica.compute_ratio, replica.others_ratio, replica.exchange_ratio)
        assert min(*steps, replica.between_ratio) >= 0
        assert sum(steps) + replica.between_ratio == pytest.approx(1)
    assert result.auto_shard is not None and not result.auto_shard.by_files
    assert result.auto_shard.decoded == IMAGES
