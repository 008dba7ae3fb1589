"""Measuring augmentations: rounds over all subjects, what a failed or stopped run leaves, and a small real run."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import ClassVar

import pytest
from rich.console import Console

from tests import PROJECT_ROOT
from tests.benchmarks.evidence.augmentation.builders import a_document, a_sample
from unstall.benchmarks.evidence.augmentation import __main__ as augmentation
from unstall.benchmarks.evidence.augmentation import measure
from unstall.benchmarks.evidence.augmentation.libraries import subjects_of
from unstall.benchmarks.evidence.augmentation.plan import Plan, parser, read_plan
from unstall.benchmarks.evidence.augmentation.view import view_of
from unstall.benchmarks.evidence.run import Evidence, run_plan
from unstall.benchmarks.lab.child import Child, ChildDied, JobRefused
from unstall.benchmarks.lab.options import UserError
from unstall.pipeline.commands.terminal import Stopped

EVIDENCE = Evidence(parser=parser, plan=read_plan, lab=measure.open_run, view=view_of)


class FakeChild:
    """Answers at once what a process that measures is asked; `fails` says what a question of a subject raises."""

    asked: ClassVar[list]
    started: ClassVar[list]
    fails: Callable

    def __init__(self, session, device, log, images, batch_size, cores):
        self._cores = cores
        self.started.append(cores)

    def ask(self, method, subject, *arguments, timeout_s):
        self.asked.append((method, subject.label, self._cores))
        error = self.fails(method, subject)
        if error is not None:
            raise error
        answers = {
            "loop": lambda: None,
            "peak_memory_bytes": lambda: 1000,
            "window": lambda round_: a_sample(round_=round_, cores=self._cores),
        }
        return answers[method](*arguments)

    def kill(self):
        pass


@pytest.fixture
def fake_child(monkeypatch):
    monkeypatch.setattr(measure, "Child", FakeChild)
    monkeypatch.setattr(measure, "kill_all", lambda children: None)
    for name in ("asked", "started"):
        monkeypatch.setattr(FakeChild, name, [], raising=False)
    monkeypatch.setattr(FakeChild, "fails", staticmethod(lambda method, subject: None), raising=False)
    return FakeChild


def run(photos, out, **changes):
    """Measures flips by OpenCV, unless another is asked for. Returns the exit code and the results file."""
    asked = a_document().plan
    asked = dataclasses.replace(asked, **{"operations": ("flip",), "libraries": ("opencv",), "rounds": 2} | changes)
    plan = Plan(asked=asked, data=str(photos), out=out)
    console, errors = (Console(file=io.StringIO(), width=200) for _ in range(2))
    code = run_plan(EVIDENCE, plan, console, errors)
    return code, json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)


def windows_of(document):
    return [
        [(sample["round"], sample["cores"]) for sample in measured["samples"]]
        for measured in document["samples"]["subjects"]
    ]


def test_every_subject_has_a_window_of_each_kind_in_every_round(fake_child, photos, tmp_path):
    code, document = run(photos, tmp_path / "out")
    assert (code, document["complete"]) == (0, True)
    assert windows_of(document) == [[(0, 1), (0, 2), (1, 1), (1, 2)]] * 2
    measured = [label for method, label, cores in fake_child.asked if method == "window" and cores == 1]
    assert measured == ["flip, opencv, element", "flip, opencv, batch"] * 2
    # One process on one core, one on all, and one more for the memory of each subject.
    assert sorted(fake_child.started) == [1, 2, 2, 2]


def test_one_core_is_measured_once(fake_child, photos, tmp_path):
    _, document = run(photos, tmp_path / "out", cores=1)
    assert windows_of(document) == [[(0, 1), (1, 1)]] * 2


def test_a_subject_that_fails_is_not_tried_again_and_named(fake_child, photos, tmp_path):
    def fails(method, subject):
        return JobRefused("it broke") if method == "window" and subject.placement == "element" else None

    fake_child.fails = staticmethod(fails)
    code, document = run(photos, tmp_path / "out")
    assert code == 0
    assert windows_of(document) == [[], [(0, 1), (0, 2), (1, 1), (1, 2)]]
    assert document["left_out"] == [{"who": "flip, opencv, element", "reason": "it broke"}]
    measured = [label for method, label, _ in fake_child.asked if method == "window"]
    assert measured.count("flip, opencv, element") == 1


def test_a_process_that_died_is_replaced(fake_child, photos, tmp_path):
    """And costs only the subject that was measured."""
    died = []

    def fails(method, subject):
        if method == "window" and subject.placement == "element" and not died:
            died.append(subject)
            return ChildDied("the process was killed")
        return None

    fake_child.fails = staticmethod(fails)
    _, document = run(photos, tmp_path / "out")
    assert document["left_out"] == [{"who": "flip, opencv, element", "reason": "the process was killed"}]
    assert windows_of(document) == [[], [(0, 1), (0, 2), (1, 1), (1, 2)]]
    assert sorted(fake_child.started) == [1, 1, 2, 2, 2]


def test_nothing_measured_is_exit_code_3_and_leaves_no_file(fake_child, photos, tmp_path):
    fake_child.fails = staticmethod(lambda method, subject: JobRefused("no memory"))
    with pytest.raises(UserError, match="nothing could be measured. flip, opencv, element: no memory;") as refused:
        run(photos, tmp_path / "out")
    assert refused.value.exit_code == 3
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_stopped_keeps_what_it_has(fake_child, photos, tmp_path):
    def fails(method, subject):
        windows = [label for asked, label, _ in fake_child.asked if asked == "window"]
        return Stopped(signal.SIGTERM) if len(windows) == 6 else None

    fake_child.fails = staticmethod(fails)
    with pytest.raises(Stopped):
        run(photos, tmp_path / "out")
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert document["complete"] is False
    assert windows_of(document) == [[(0, 1), (0, 2), (1, 1)], [(0, 1), (0, 2)]]
    assert list((tmp_path / "out").iterdir()) == [tmp_path / "out" / "results.json"]


def test_a_run_that_is_stopped_before_its_first_window_leaves_nothing(fake_child, photos, tmp_path):
    fake_child.fails = staticmethod(
        lambda method, subject: Stopped(signal.SIGINT) if method == "peak_memory_bytes" else None
    )
    with pytest.raises(Stopped):
        run(photos, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rounds", "0"], "--rounds must be at least 1. Received: 0."),
        (["--batch-size", "0"], "--batch-size must be at least 1. Received: 0."),
        (["--image-size", "8"], "--image-size must be at least 32. Received: 8."),
        (["--operations", "sheer"], "--operations: 'sheer' is not known. Did you mean 'shear'?"),
        (["--operations", ","], "--operations needs at least one name."),
        (["--libraries", "open-cv"], "--libraries: 'open-cv' is not known. Did you mean 'opencv'?"),
        (["--operations", "crop", "--libraries", "keras_generator"], "No library of keras_generator has crop."),
        (["--data", "nowhere"], "nowhere does not exist"),
        (["--out", "/proc/nowhere"], "results cannot be written there"),
    ],
)
def test_bad_words_get_one_line_and_exit_code_2(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert augmentation.main(words) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert len(shown.err.strip().splitlines()) == 1
    assert shown.out == ""


def test_the_command_starts_without_the_libraries():
    modules = ", ".join(f"benchmarks.evidence.augmentation.{name}" for name in ("__main__", "measure", "view"))
    code = f"import sys, {modules}; print({{'tensorflow', 'keras', 'cv2', 'albumentations'}} & {{*sys.modules}})"
    shown = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


class Kept(Child):
    """A process that goes on when it is killed alone."""

    def kill(self):
        pass


@pytest.fixture
def few_children(monkeypatch):
    """Has the process on all cores measure the memory too, instead of fresh ones, which take seconds to start.

    So nothing that a run asserts may be about how much memory it is: that is in test_libraries.py.
    """
    kept = {}

    def child(*arguments):
        cores = arguments[-1]
        if cores not in kept:
            kept[cores] = Kept(*arguments)
        return kept[cores]

    monkeypatch.setattr(measure, "Child", child)


@pytest.mark.long
@pytest.mark.usefixtures("few_children")
def test_a_small_run_leaves_its_table(photos, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--data", str(photos), "--operations", "flip", "--libraries", "keras_generator,tf_ops"]
    assert augmentation.main([*words, "--rounds", "1", "--batch-size", "4", "--out", str(out)]) == 0
    document = json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)
    subjects = subjects_of(("flip",), ("keras_generator", "tf_ops"))
    named = [(result["library"], result["placement"]) for result in document["results"]]
    assert named == [(subject.library, subject.placement) for subject in subjects]
    for result in document["results"]:
        for name in ("cpu_us_per_image", "wall_us_per_image", "peak_memory_bytes"):
            assert math.isfinite(result[name]), name
        assert result["cpu_us_per_image"] > 0
    samples = [sample for measured in document["samples"]["subjects"] for sample in measured["samples"]]
    assert samples and all(sample["images"] > 0 for sample in samples)
    assert document["left_out"] == []
    printed = capsys.readouterr().out
    assert "keras_generator" in printed
    assert max(map(len, printed.splitlines()[: len(subjects) + 1])) <= 80
