"""A decision from costs that a child answers, and the exit codes."""

from __future__ import annotations

import pytest
from rich.console import Console

from benchmarks.capacity.__main__ import COMMAND as CAPACITY
from benchmarks.lab import command
from benchmarks.lab import run as lab_run
from benchmarks.lab.child import ChildDied
from benchmarks.lab.options import UserError
from benchmarks.scaleout import measure
from benchmarks.scaleout.__main__ import CHECK
from benchmarks.scaleout.plan import Plan
from pipeline import from_folder
from tests.builders import (
    a_capacity_document,
    a_costs,
    a_measured_pool,
    a_scaleout_check_document,
    a_scaleout_document,
)
from tests.checks import kind_of


class FakeChild:
    asked: list[str]
    error: Exception | None = None

    def __init__(self, *arguments):
        self.asked.clear()

    def ask(self, method, *arguments, timeout_s):
        self.asked.append(method)
        if self.error is not None:
            raise self.error
        return a_costs() if method == "costs" else None

    def close(self):
        self.asked.append("closed")

    kill = close


@pytest.fixture
def run(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(lab_run, "Child", type("Child", (FakeChild,), {"asked": []}))
    asked = a_scaleout_document().plan
    plan = Plan(asked=asked, data=str(photos), out=tmp_path)
    return measure.Run(plan, from_folder(photos), command.progress_bar(Console(quiet=True)))


def test_costs_are_measured_of_the_pipeline_and_of_the_model(run, tmp_path):
    written = []
    run.measure(lambda: written.append(run.document(complete=False).samples.costs))
    assert run._child.asked == ["backend", "open_model", "costs"]
    assert written == [a_costs()] and list(tmp_path.iterdir()) == []
    run.close()
    assert run._child.asked[-1] == "closed"


def test_a_child_that_dies_is_one_line(run, monkeypatch):
    monkeypatch.setattr(lab_run.Child, "error", ChildDied("it was killed by SIGKILL"))
    with pytest.raises(UserError, match="^scaleout: it was killed by SIGKILL$") as caught:
        run.measure(lambda: None)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(("rate", "code"), [(250.0, 0), (500.0, 1)])
def test_a_prediction_that_misses_is_exit_code_1(rate, code):
    for asked, document in (
        (CHECK, a_scaleout_check_document(a_measured_pool(rates=(rate,)))),
        (CAPACITY, a_capacity_document(a_measured_pool(rates=(rate,)))),
    ):
        assert asked.exit_code(document, kind_of(asked).derive(document)) == code
