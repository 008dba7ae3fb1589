"""What a plan of capacity measures, by a child that answers at once."""

from __future__ import annotations

import os

import numpy as np
import pytest
from rich.console import Console

from tests.builders import CONSTANTS, CUTS, a_capacity_document, a_measured_pool, a_scaleout_check_document
from unstall.benchmarks.capacity import measure
from unstall.benchmarks.capacity.plan import Plan
from unstall.benchmarks.lab import command
from unstall.benchmarks.lab import run as lab_run
from unstall.benchmarks.lab.child import JobRefused
from unstall.benchmarks.lab.options import UserError
from unstall.pipeline import from_folder

BAR = command.progress_bar(Console(quiet=True))


class FakeChild:
    error: Exception | None = None

    def __init__(self, *arguments):
        pass

    def ask(self, method, *arguments, timeout_s):
        if self.error is not None:
            raise self.error
        return {"cut": CUTS[2], "constants": CONSTANTS, "loader_us": 4000.0}[method]

    def close(self):
        pass

    kill = close


@pytest.fixture
def plan(photos, tmp_path, monkeypatch) -> Plan:
    monkeypatch.setattr(lab_run, "Child", type("Child", (FakeChild,), {}))
    runs = a_scaleout_check_document(a_measured_pool())
    return Plan(asked=a_capacity_document().plan, data=str(photos), out=tmp_path, runs=runs)


def test_costs_and_files_are_measured_and_small_runs_are_kept(plan, photos, tmp_path):
    source = from_folder(photos)
    run = measure.Run(plan, source, BAR)
    assert run.document(complete=False).samples.cut is None
    run.measure(lambda: None)
    samples = run.document(complete=True).samples
    assert (samples.cut, samples.constants, samples.loader_us) == (CUTS[2], CONSTANTS, 4000.0)
    assert samples.file_bytes == pytest.approx(np.mean([os.path.getsize(path) for path in source.paths]))
    assert plan.runs is not None
    assert (samples.pools, samples.runs) == (plan.runs.plan.pools, plan.runs.samples)
    assert list(tmp_path.iterdir()) == []


def test_a_pipeline_that_no_service_can_serve_is_one_line(plan, photos, monkeypatch):
    monkeypatch.setattr(lab_run.Child, "error", JobRefused("a service reads folders of files only"))
    with pytest.raises(UserError, match="^capacity: a service reads folders of files only$") as caught:
        measure.Run(plan, from_folder(photos), BAR).measure(lambda: None)
    assert caught.value.exit_code == 3
