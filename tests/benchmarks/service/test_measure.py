"""What a comparison keeps of its workers, and how long a subject may take, by a child that answers at once."""

from __future__ import annotations

import dataclasses
import os

import pytest
from rich.console import Console

from tests.builders import a_measured_service, a_service_document, a_worker_window
from unstall.benchmarks.lab import child, command
from unstall.benchmarks.lab import run as lab_run
from unstall.benchmarks.service import measure
from unstall.benchmarks.service.plan import Plan
from unstall.pipeline import from_folder

WORKERS = tuple(a_worker_window(f"{host}:7", 1000) for host in (os.uname().nodename, "another"))


class FakeChild:
    def __init__(self, *arguments):
        self.timeouts_s = []

    def ask(self, method, service, *number, timeout_s):
        self.timeouts_s.append(timeout_s)
        measured = a_measured_service(service, 1000.0, workers=WORKERS)
        return dataclasses.replace(measured, windows=()) if method == "start" else measured.windows[0]

    def close(self):
        pass

    kill = close


@pytest.fixture
def run_of(photos, tmp_path, monkeypatch):
    """Returns a function that measures a round, with a device or without, and returns the run."""
    monkeypatch.setattr(lab_run, "Child", FakeChild)

    def measured(device_images_per_sec):
        asked = a_service_document(a_measured_service("local:1", 1000.0)).plan
        asked = dataclasses.replace(asked, rounds=1, images_per_sec=device_images_per_sec)
        plan = Plan(asked=asked, data=str(photos), out=tmp_path)
        run = measure.Run(plan, from_folder(photos), command.progress_bar(Console(quiet=True)))
        run.measure(lambda: None)
        return run

    return measured


def test_workers_are_named_without_the_name_of_this_host(run_of):
    samples = run_of(None).document(complete=True).samples
    [subject] = samples.subjects
    names = {window.first.worker for window in subject.windows[0].workers}
    assert names == {window.last.worker for window in subject.windows[0].workers}
    assert names == {facts.worker for facts in subject.facts} == {"this host:7", "another:7"}
    assert samples.host == "this host"


@pytest.mark.parametrize(("device_images_per_sec", "timeout_s"), [(None, 800), (0.2, 1000)])
def test_long_epochs_get_more_time_before_they_count_as_hung(device_images_per_sec, timeout_s, run_of, monkeypatch):
    """A window takes an epoch of 40 photos, and one more, which a slow device holds back."""
    monkeypatch.setattr(child, "_LEAST_IMAGES_PER_SEC", 0.1)
    assert run_of(device_images_per_sec)._child.timeouts_s == [timeout_s, timeout_s]
