"""How processes of a subject are asked, and what becomes of the others where one of them fails."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import signal
import threading
from collections import Counter
from typing import Any, ClassVar

import pytest
from rich.console import Console

from tests.builders import a_measured_trainers, a_process_epoch, a_trainers_document
from unstall.benchmarks.lab import child as lab_child
from unstall.benchmarks.lab import command
from unstall.benchmarks.lab.child import ChildDied, ChildHung, JobRefused
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.trainers import measure, processes
from unstall.benchmarks.trainers.measure import Run
from unstall.benchmarks.trainers.plan import Plan
from unstall.benchmarks.trainers.processes import Trainers, TrainersFailed
from unstall.pipeline import from_folder

KILLED = "the process was killed; most likely the machine ran out of memory"


class FakeChild:
    """Answers at once, or as its `trouble` says; one that hangs waits until it is killed."""

    trouble: ClassVar[dict[tuple[str, int], Exception | str]] = {}
    living: ClassVar[list[FakeChild]] = []
    places: ClassVar[list[tuple[str, int, str]]] = []
    environments: ClassVar[list[dict[str, str]]] = []
    timeouts_s: ClassVar[set[float]] = set()
    models: ClassVar[set[str]] = set()

    def __init__(self, session, device, log, asked, source, subject, process, address, *, environment):
        self._subject, self._process, self._killed = subject, process, threading.Event()
        FakeChild.living.append(self)
        FakeChild.places.append((subject, process, address))
        FakeChild.environments.append(environment)
        FakeChild.models.add(asked.model)
        log.write_text("said")

    def ask(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        self.timeouts_s.add(timeout_s)
        trouble = self.trouble.get((method, self._process))
        if trouble == "hang":
            assert self._killed.wait(30)
            raise ChildDied("the process died of signal SIGTERM")
        if isinstance(trouble, Exception):
            raise trouble
        if method == "start":
            return None
        return a_process_epoch(subject=self._subject, round=arguments[0], process=self._process)

    def kill(self) -> None:
        self._killed.set()
        if self in FakeChild.living:
            FakeChild.living.remove(self)


def kill_fakes(children) -> None:
    for child in children:
        child.kill()


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "Child", FakeChild)
    monkeypatch.setattr(processes, "kill_all", kill_fakes)
    monkeypatch.setattr(processes, "_SETTLE_S", 0.05)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    FakeChild.trouble, FakeChild.living, FakeChild.places, FakeChild.environments = {}, [], [], []
    FakeChild.timeouts_s, FakeChild.models = set(), set()


def a_run(photos, out, *subjects: str, batch_size: int = 1) -> Run:
    asked = a_trainers_document(*(a_measured_trainers(subject) for subject in subjects)).plan
    asked = dataclasses.replace(asked, config=dataclasses.replace(asked.config, batch_size=batch_size))
    plan = Plan(asked=asked, data=str(photos), model="/home/anna/net.keras", out=out)
    return Run(plan, from_folder(photos), command.progress_bar(Console(quiet=True)))


def epochs_of(run: Run) -> Counter[str]:
    return Counter(epoch.subject for epoch in run.samples().epochs)


def test_every_subject_is_measured_once_a_round_in_all_of_its_processes(photos, tmp_path):
    run = a_run(photos, tmp_path, "one-jax", "jax-processes")
    rounds = []
    run.measure(lambda: rounds.append(epochs_of(run)["one-jax"]))
    run.close()
    document = run.document(complete=True)
    assert rounds == [1, 2, 3]
    assert epochs_of(run) == {"one-jax": 3, "jax-processes": 6}
    assert not document.left_out and not FakeChild.living and not list(tmp_path.iterdir())


def test_children_open_the_model_as_it_was_typed_and_the_document_keeps_its_name(photos, tmp_path):
    run = a_run(photos, tmp_path, "jax-processes")
    run.measure(lambda: None)
    assert FakeChild.models == {"/home/anna/net.keras"}
    assert run.document(complete=True).plan.model == "cats-dogs-64"


def test_long_epochs_get_more_time_before_they_count_as_hung(photos, tmp_path, monkeypatch):
    """A request trains for two epochs of 40 photos, which each of two processes may decode."""
    monkeypatch.setattr(lab_child, "_LEAST_IMAGES_PER_SEC", 0.4)
    a_run(photos, tmp_path, "jax-processes").measure(lambda: None)
    assert FakeChild.timeouts_s == {400}


def test_the_processes_of_a_subject_meet_at_one_port_of_this_host_only(photos, tmp_path):
    a_run(photos, tmp_path, "one-jax", "jax-processes").measure(lambda: None)
    one, *several = FakeChild.places
    assert one == ("one-jax", 0, "")
    assert [place[:2] for place in several] == [("jax-processes", 0), ("jax-processes", 1)]
    [address] = {address for *_, address in several}
    host, port = address.split(":")
    assert host == "127.0.0.1" and int(port) > 0
    assert {environment["KERAS_BACKEND"] for environment in FakeChild.environments} == {"jax"}


@pytest.mark.parametrize("method", ["start", "epoch"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_ends_ends_those_that_wait_for_it(method, number, photos, tmp_path):
    FakeChild.trouble = {
        (method, number): ChildDied(KILLED),
        (method, 1 - number): "hang",
    }
    run = a_run(photos, tmp_path, "jax-processes")
    run.measure(lambda: None)
    assert not FakeChild.living
    [left_out] = run.document(complete=True).left_out
    assert left_out.who == "jax-processes"
    assert left_out.reason == f"process {number} of 2: {KILLED}"
    run.close()
    assert len(list(tmp_path.iterdir())) == 2  # its logs stay


def test_a_process_that_ended_is_named_before_the_error_that_its_end_is_for_others(photos, tmp_path):
    FakeChild.trouble = {("epoch", 0): JobRefused("connection closed by peer"), ("epoch", 1): ChildDied(KILLED)}
    run = a_run(photos, tmp_path, "jax-processes")
    run.measure(lambda: None)
    [left_out] = run.document(complete=True).left_out
    assert left_out.reason == f"process 1 of 2: {KILLED}"


def test_the_other_subjects_go_on(photos, tmp_path):
    FakeChild.trouble = {("epoch", 1): ChildHung("no answer within 300 s: it hung and was ended")}
    run = a_run(photos, tmp_path, "one-jax", "jax-processes")
    run.measure(lambda: None)
    run.close()
    assert epochs_of(run) == {"one-jax": 3}


def test_a_refusal_of_all_processes_is_said_once(photos, tmp_path):
    refused = JobRefused("/home/anna/net.keras takes no photos")
    FakeChild.trouble = dict.fromkeys([("start", 0), ("start", 1)], refused)
    run = a_run(photos, tmp_path, "jax-processes")
    run.measure(lambda: None)
    [left_out] = run.document(complete=True).left_out
    assert left_out.reason == "cats-dogs-64 takes no photos"  # the document's name of the model


def test_a_process_that_cannot_be_started_ends_the_others(photos, tmp_path, monkeypatch):
    class Second(FakeChild):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            if self._process:
                raise ChildDied("the process ended with exit code 1")

    monkeypatch.setattr(processes, "Child", Second)
    with pytest.raises(TrainersFailed, match="exit code 1"):
        Trainers("jax-processes", a_run(photos, tmp_path)._asked, from_folder(photos), tmp_path)
    assert [child._process for child in FakeChild.living] == [1]  # of the fakes only: it never began


def test_a_signal_ends_processes_that_wait(photos, tmp_path):
    FakeChild.trouble = {("epoch", 0): "hang"}
    run = a_run(photos, tmp_path, "one-jax")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, stop)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run.measure(lambda: None)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert not FakeChild.living


def test_without_jax_its_subjects_are_left_out(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(measure.importlib.util, "find_spec", lambda name: None)
    run = a_run(photos, tmp_path, "one-tensorflow", "one-jax")
    run.measure(lambda: None)
    [left_out] = run.document(complete=True).left_out
    assert (left_out.who, left_out.reason) == ("one-jax", "JAX is not installed: pip install jax")


def test_an_epoch_has_whole_steps_of_all_trainers(photos, tmp_path):
    assert a_run(photos, tmp_path, batch_size=3).document(complete=False).dataset["images"] == 36


def test_too_few_photos_for_a_step_are_refused(photos, tmp_path):
    match = "^A step of all trainers takes 42 images, and there are 40: give more images, or a smaller --batch-size.$"
    with pytest.raises(UserError, match=match):
        a_run(photos, tmp_path, batch_size=21)
