"""A decision from costs that a child answers, and the exit codes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from tests.builders import (
    a_capacity_document,
    a_costs,
    a_measured_pool,
    a_scaleout_check_document,
    a_scaleout_document,
)
from tests.checks import kind_of
from unstall.benchmarks.capacity.__main__ import COMMAND as CAPACITY
from unstall.benchmarks.lab import command
from unstall.benchmarks.lab import run as lab_run
from unstall.benchmarks.lab.child import ChildDied
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.scaleout import measure
from unstall.benchmarks.scaleout.__main__ import CHECK
from unstall.benchmarks.scaleout.plan import Plan
from unstall.pipeline import from_folder
from unstall.profiles.report import LeftOut


class FakeChild:
    asked: list[str]
    error: Exception | None = None

    def __init__(self, *arguments):
        self.arguments = arguments
        self.given = {}
        self.asked.clear()

    def ask(self, method, *arguments, timeout_s):
        self.asked.append(method)
        self.given[method] = arguments
        if self.error is not None:
            raise self.error
        return a_costs() if method == "costs" else None

    def close(self):
        self.asked.append("closed")

    kill = close


@pytest.fixture
def run_of(photos, tmp_path, monkeypatch):
    """Returns a function that makes a run on 40 photos, of a pipeline with a batch size."""
    monkeypatch.setattr(lab_run, "Child", type("Child", (FakeChild,), {"asked": []}))

    def make(batch_size):
        asked = a_scaleout_document().plan
        asked = replace(asked, config=replace(asked.config, batch_size=batch_size))
        plan = Plan(asked=asked, data=str(photos), model="/home/anna/net.keras", out=tmp_path)
        return measure.Run(plan, from_folder(photos), command.progress_bar(Console(quiet=True)))

    return make


@pytest.fixture
def run(run_of):
    return run_of(10)


@pytest.mark.parametrize(("batch_size", "most_batches", "images"), [(10, 64, 40), (16, 64, 32), (10, 2, 20)])
def test_costs_are_measured_on_whole_batches_of_all_classes(run_of, batch_size, most_batches, images, monkeypatch):
    """A worker decodes a full batch in the place of a short one, whose few images would seem to cost more."""
    monkeypatch.setattr(measure, "_MOST_BATCHES", most_batches)
    run = run_of(batch_size)
    source = run._child.arguments[-1]
    assert source.images == images and set(source.labels.tolist()) == {0, 1}
    assert run.document(complete=False).dataset["images"] == 40


def test_photos_that_do_not_fill_a_batch_are_refused(run_of, tmp_path):
    message = r"^A batch takes 41 images, and there are 40: give more images, or --set batch_size=40\.$"
    with pytest.raises(UserError, match=message):
        run_of(41)
    assert list(tmp_path.iterdir()) == []


def test_costs_are_measured_of_the_pipeline_and_of_the_model(run, tmp_path):
    written = []
    run.measure(lambda: written.append(run.document(complete=False).samples.costs))
    assert run._child.asked == ["backend", "open_model", "costs"]
    assert written == [a_costs()] and list(tmp_path.iterdir()) == []
    opened = run._child.given["open_model"][0], run._child.given["costs"][1]
    assert opened == ("/home/anna/net.keras",) * 2  # the document keeps the name alone
    run.close()
    assert run._child.asked[-1] == "closed"


def test_a_child_that_dies_is_one_line(run, monkeypatch):
    monkeypatch.setattr(lab_run.Child, "error", ChildDied("it was killed by SIGKILL"))
    with pytest.raises(UserError, match="^scaleout: it was killed by SIGKILL$") as caught:
        run.measure(lambda: None)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(("rate", "code"), [(250.0, 4), (500.0, 1)])
def test_a_check_whose_pools_were_not_all_measured_is_undecided_unless_one_misses(rate, code):
    failed = (LeftOut(who="another", reason="the process was killed"),)
    document = a_scaleout_check_document(a_measured_pool(rates=(rate,)), left_out=failed)
    assert CHECK.exit_code(document, kind_of(CHECK).derive(document)) == code


@pytest.mark.parametrize(("rate", "code"), [(250.0, 0), (500.0, 1)])
def test_a_prediction_that_misses_is_exit_code_1(rate, code):
    for asked, document in (
        (CHECK, a_scaleout_check_document(a_measured_pool(rates=(rate,)))),
        (CAPACITY, a_capacity_document(a_measured_pool(rates=(rate,)))),
    ):
        assert asked.exit_code(document, kind_of(asked).derive(document)) == code
