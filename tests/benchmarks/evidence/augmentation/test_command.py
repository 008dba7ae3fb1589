"""The augmentation command: rounds over all subjects, what a failed or stopped run leaves, and a small real run."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from tests import PROJECT_ROOT
from tests.builders import an_augmentation_document as a_document
from tests.builders import an_augmentation_sample as a_sample
from unstall.benchmarks.evidence.augmentation import __main__ as augmentation
from unstall.benchmarks.evidence.augmentation import measure, workers
from unstall.benchmarks.evidence.augmentation.libraries import subjects_of
from unstall.benchmarks.evidence.augmentation.plan import Plan
from unstall.benchmarks.evidence.augmentation.results import DIFFERENCE_BOUND
from unstall.benchmarks.evidence.augmentation.workers import SubjectFailed, Worker
from unstall.benchmarks.lab.command import run_plan
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.show import show
from unstall.pipeline.commands.terminal import Stopped


class FakeWorker:
    """Answers at once what a process that measures is asked; `fails` says what a question of a subject raises."""

    asked: ClassVar[list]
    fails: Callable

    def __init__(self, images, batch_size, *, cores):
        self._cores = cores

    def ask(self, function, subject, *arguments):
        self.asked.append((function, subject.label, self._cores))
        error = self.fails(function, subject)
        if error is not None:
            raise error
        answers = {
            workers.look_for_loop: lambda: None,
            workers.picture: lambda images: images * (0.5 if subject.library == "tf_ops" else 1.0),
            workers.peak_memory_bytes: lambda: 1000,
            workers.measure: lambda round_: a_sample(round_=round_, cores=self._cores),
        }
        return answers[function](*arguments)

    def close(self):
        pass


@pytest.fixture
def fake_worker(monkeypatch):
    monkeypatch.setattr("unstall.benchmarks.evidence.augmentation.measure.Worker", FakeWorker)
    monkeypatch.setattr(FakeWorker, "asked", [], raising=False)
    monkeypatch.setattr(FakeWorker, "fails", staticmethod(lambda function, subject: None), raising=False)
    return FakeWorker


def run(photos, out, **changes):
    """Measures flips by OpenCV, unless another is asked for. Returns the exit code and the results file."""
    asked = a_document().plan
    asked = dataclasses.replace(asked, **{"operations": ("flip",), "libraries": ("opencv",), "rounds": 2} | changes)
    plan = Plan(asked=asked, data=str(photos), out=out)
    console, errors = (Console(file=io.StringIO(), width=200) for _ in range(2))
    code = run_plan(augmentation.COMMAND, plan, console, errors)
    return code, json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)


def windows_of(document):
    return [
        [(sample["round"], sample["cores"]) for sample in measured["samples"]]
        for measured in document["samples"]["subjects"]
    ]


def test_every_subject_has_a_window_of_each_kind_in_every_round(fake_worker, photos, tmp_path):
    code, document = run(photos, tmp_path / "out")
    assert (code, document["complete"]) == (0, True)
    assert windows_of(document) == [[(0, 1), (0, 2), (1, 1), (1, 2)]] * 2
    measured = [label for function, label, cores in fake_worker.asked if function is workers.measure and cores == 1]
    assert measured == ["flip, opencv, element", "flip, opencv, batch"] * 2
    first = Image.open(io.BytesIO(base64.b64decode(document["samples"]["subjects"][0]["picture"])))
    assert np.array_equal(first, Image.open(io.BytesIO(base64.b64decode(document["samples"]["original"]))))


def test_one_core_is_measured_once(fake_worker, photos, tmp_path):
    _, document = run(photos, tmp_path / "out", cores=1)
    assert windows_of(document) == [[(0, 1), (1, 1)]] * 2


def test_a_subject_that_fails_is_not_tried_again_and_named(fake_worker, photos, tmp_path):
    def fails(function, subject):
        return SubjectFailed("it broke") if function is workers.measure and subject.placement == "element" else None

    fake_worker.fails = staticmethod(fails)
    code, document = run(photos, tmp_path / "out")
    assert code == 0
    assert windows_of(document) == [[], [(0, 1), (0, 2), (1, 1), (1, 2)]]
    assert document["left_out"] == [{"who": "flip, opencv, element", "reason": "it broke"}]
    measured = [label for function, label, _ in fake_worker.asked if function is workers.measure]
    assert measured.count("flip, opencv, element") == 1
    assert "failed: it broke" in (tmp_path / "out" / "report.html").read_text()


def test_a_subject_that_does_not_do_the_same_gives_exit_code_1(fake_worker, photos, tmp_path):
    code, document = run(photos, tmp_path / "out", libraries=("tf_ops", "opencv"))
    assert code == 1
    off = {result["library"]: result["difference_levels"] >= DIFFERENCE_BOUND for result in document["results"]}
    assert off == {"tf_ops": True, "opencv": False}


def test_nothing_measured_is_exit_code_3_and_leaves_no_file(fake_worker, photos, tmp_path):
    fake_worker.fails = staticmethod(lambda function, subject: SubjectFailed("no memory"))
    with pytest.raises(UserError, match="nothing could be measured. flip, opencv, element: no memory;") as refused:
        run(photos, tmp_path / "out")
    assert refused.value.exit_code == 3
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_stopped_keeps_what_it_has(fake_worker, photos, tmp_path):
    def fails(function, subject):
        windows = [label for asked, label, _ in fake_worker.asked if asked is workers.measure]
        return Stopped(signal.SIGTERM) if len(windows) == 6 else None

    fake_worker.fails = staticmethod(fails)
    with pytest.raises(Stopped):
        run(photos, tmp_path / "out")
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert document["complete"] is False
    assert windows_of(document) == [[(0, 1), (0, 2), (1, 1)], [(0, 1), (0, 2)]]
    assert "This run was stopped before its end" in (tmp_path / "out" / "report.html").read_text()


def test_a_run_that_is_stopped_before_its_first_window_leaves_nothing(fake_worker, photos, tmp_path):
    fake_worker.fails = staticmethod(
        lambda function, subject: Stopped(signal.SIGINT) if function is workers.peak_memory_bytes else None
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
    modules = ", ".join(f"benchmarks.evidence.augmentation.{name}" for name in ("__main__", "measure", "report"))
    code = f"import sys, {modules}; print({{'tensorflow', 'keras', 'cv2', 'albumentations'}} & {{*sys.modules}})"
    shown = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


@pytest.fixture
def memory_beside(monkeypatch):
    """Has the second worker measure the memory too, in the place of fresh ones, which take seconds to start.

    So nothing that a run asserts may be about how much memory it is: that is in test_libraries.py.
    """
    started: list[measure.Worker] = []

    def worker(*arguments: Any, **options: Any) -> Any:
        if len(started) < 2:
            started.append(Worker(*arguments, **options))
            return started[-1]
        return types.SimpleNamespace(ask=started[1].ask, close=lambda: None)

    monkeypatch.setattr(measure, "Worker", worker)


@pytest.mark.long
@pytest.mark.usefixtures("memory_beside")
def test_a_small_run_leaves_its_table_and_its_pictures(photos, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--data", str(photos), "--operations", "flip", "--libraries", "keras_generator,tf_ops"]
    assert augmentation.main([*words, "--rounds", "1", "--batch-size", "4", "--out", str(out)]) == 0
    document = json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)
    subjects = subjects_of(("flip",), ("keras_generator", "tf_ops"))
    named = [(result["library"], result["placement"]) for result in document["results"]]
    assert named == [(subject.library, subject.placement) for subject in subjects]
    for result in document["results"]:
        assert result["failure"] is None
        for name in ("cpu_us_per_image", "wall_us_per_image", "difference_levels", "peak_memory_bytes"):
            assert math.isfinite(result[name]), name
        assert result["cpu_us_per_image"] > 0
    samples = [sample for measured in document["samples"]["subjects"] for sample in measured["samples"]]
    assert samples and all(sample["images"] > 0 for sample in samples)
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3  # the original, and one of each library
    printed = capsys.readouterr().out
    assert "keras_generator" in printed
    assert max(map(len, printed.splitlines()[: len(subjects) + 1])) <= 80
    assert show([str(out)]) == 0
    assert printed.startswith(capsys.readouterr().out)
