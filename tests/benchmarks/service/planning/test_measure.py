"""A prediction from costs that a child answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from tests.builders import a_costs, a_service_plan_document
from unstall.benchmarks.lab import command
from unstall.benchmarks.lab import run as lab_run
from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.service.planning import measure
from unstall.benchmarks.service.planning.plan import Plan
from unstall.pipeline import from_folder


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
        asked = a_service_plan_document().plan
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
    assert run._child.given["costs"][2] is None  # the images are as large as the model's
    run.close()
    assert run._child.asked[-1] == "closed"


def test_a_child_that_dies_is_one_line(run, monkeypatch):
    monkeypatch.setattr(lab_run.Child, "error", ChildDied("it was killed by SIGKILL"))
    with pytest.raises(UserError, match="^service plan: it was killed by SIGKILL$") as caught:
        run.measure(lambda: None)
    assert caught.value.exit_code == 3


def test_a_pipeline_that_no_service_can_serve_is_one_line(run, monkeypatch):
    monkeypatch.setattr(lab_run.Child, "error", JobRefused("a service reads folders of files only"))
    with pytest.raises(UserError, match="^service plan: a service reads folders of files only$") as caught:
        run.measure(lambda: None)
    assert caught.value.exit_code == 3
