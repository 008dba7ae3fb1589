"""How long a subject of a comparison may take, by a child that answers at once."""

from __future__ import annotations

import dataclasses

import pytest
from rich.console import Console

from benchmarks.lab import child, command
from benchmarks.lab import run as lab_run
from benchmarks.service import measure
from benchmarks.service.plan import Plan
from pipeline import from_folder
from tests.builders import a_measured_service, a_service_document


class FakeChild:
    def __init__(self, *arguments):
        self.timeouts_s = []

    def ask(self, method, service, *number, timeout_s):
        self.timeouts_s.append(timeout_s)
        measured = a_measured_service(service, 1000.0)
        return dataclasses.replace(measured, windows=()) if method == "start" else measured.windows[0]

    def close(self):
        pass

    kill = close


@pytest.mark.parametrize(("device_images_per_sec", "timeout_s"), [(None, 800), (0.2, 1000)])
def test_long_epochs_get_more_time_before_they_count_as_hung(
    device_images_per_sec, timeout_s, photos, tmp_path, monkeypatch
):
    """A window takes an epoch of 40 photos, and one more, which a slow device holds back."""
    monkeypatch.setattr(lab_run, "Child", FakeChild)
    monkeypatch.setattr(child, "_LEAST_IMAGES_PER_SEC", 0.1)
    asked = a_service_document(a_measured_service("local:1", 1000.0)).plan
    asked = dataclasses.replace(asked, rounds=1, images_per_sec=device_images_per_sec)
    plan = Plan(asked=asked, data=str(photos), out=tmp_path)
    run = measure.Run(plan, from_folder(photos), command.progress_bar(Console(quiet=True)))
    run.measure(lambda: None)
    assert run._child.timeouts_s == [timeout_s, timeout_s]
