"""One function in two Python environments: images are counted, the slower one is found, what differs is named."""

from __future__ import annotations

import dataclasses
import stat
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.builders import GATE_QUESTION
from tests.planted import planted
from unstall.benchmarks.gate import processes
from unstall.benchmarks.gate.__main__ import main
from unstall.benchmarks.gate.processes import MeasureError, Setting, Subject, measure
from unstall.benchmarks.gate.report import comparison_answers
from unstall.benchmarks.gate.results import Comparison, ComparisonResult
from unstall.benchmarks.gate.samples import Measurement, Process
from unstall.profiles.devices import CPU
from unstall.profiles.gate import EPOCH

SETTING = Setting(data="", measure="loader", model="", device=CPU, timeout_s=60)
MINE = """
import os, time

def epoch():
    time.sleep(float(os.environ["PLANTED_S"]))
    return 100

def batches():
    time.sleep(0.1)
    return [([0] * 3, [1] * 3), ([0] * 2, [1] * 2)]

def nothing():
    return 0

def text():
    return None

def fails():
    raise RuntimeError("no\\nmore")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def python_that_sleeps(folder: Path, seconds: float) -> str:
    """An interpreter without any package, in which `epoch` takes so long."""
    path = folder / f"python{seconds}"
    path.write_text(f'#!/bin/sh\nPLANTED_S={seconds} exec {sys.executable} -S "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def measured(folder: Path, function: str, python: str) -> Process:
    subject = Subject(label=function, kind="function", text=f"mine:{function}", root=folder, python=python)
    return measure(subject, SETTING, folder / "log")


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls of what takes 0.1 s in a window."""
    monkeypatch.setattr("unstall.benchmarks.gate.processes._WINDOW_S", 0.2)


@planted
@pytest.mark.usefixtures("short_windows")
def test_a_function_is_timed_in_an_environment_without_any_package(folder: Path) -> None:
    process = measured(folder, "epoch", python_that_sleeps(folder, 0.1))
    assert process.images_per_sec[EPOCH] == pytest.approx(1000, rel=0.05)
    assert list(process.packages) == ["python"] and len(process.rates[EPOCH]) == 4


@planted
@pytest.mark.usefixtures("short_windows")
def test_batches_are_counted(folder: Path) -> None:
    process = measured(folder, "batches", python_that_sleeps(folder, 0.0))
    assert process.images_per_sec[EPOCH] == pytest.approx(50, rel=0.05)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nothing", "mine:nothing must go through at least 1 image. Received: 0"),
        ("text", "mine:text: TypeError: it must return a number of images, or batches. Received: NoneType"),
        ("fails", "mine:fails: RuntimeError: no"),
        ("missing", "mine:missing: AttributeError: "),
    ],
)
def test_a_function_that_counts_nothing_is_said_in_one_line(function: str, message: str, folder: Path) -> None:
    with pytest.raises(MeasureError) as caught:
        measured(folder, function, python_that_sleeps(folder, 0.0))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_all_calls_together_have_the_time_of_a_process(folder: Path) -> None:
    python = python_that_sleeps(folder, 0.4)
    subject = Subject(label="epoch", kind="function", text="mine:epoch", root=folder, python=python)
    with pytest.raises(MeasureError, match=r"^epoch: it was not measured within 1 s, and was ended\. "):
        measure(subject, dataclasses.replace(SETTING, timeout_s=1.0), folder / "log")


def test_no_gpu_is_hidden_from_another_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "mine.py").write_text("import os\ndef epoch():\n    return int(os.environ['CUDA_VISIBLE_DEVICES'])\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr("unstall.benchmarks.gate.processes._WINDOW_S", 0.001)
    assert measured(folder, "epoch", python_that_sleeps(folder, 0.0)).images_per_sec[EPOCH] > 0


def test_an_interpreter_that_ends_at_once_is_said_in_one_line(folder: Path) -> None:
    (folder / "python").write_text("#!/bin/sh\necho broken >&2\nexit 5\n")
    (folder / "python").chmod(0o755)
    with pytest.raises(MeasureError, match="the process ended with exit code 5: broken"):
        measured(folder, "epoch", str(folder / "python"))


def environment_with(folder: Path, images: int) -> str:
    """The interpreter of an environment of its own, in which a package named `unstall` holds one constant."""
    venv.create(folder)
    site_packages = sysconfig.get_path("purelib", "venv", vars={"base": str(folder), "platbase": str(folder)})
    (Path(site_packages) / "unstall").mkdir()
    (Path(site_packages) / "unstall" / "__init__.py").write_text(f"IMAGES = {images}\n")
    return str(folder / "bin" / "python")


COUNTS = "import time\n\nimport unstall\n\ndef epoch():\n    time.sleep(0.01)\n    return unstall.IMAGES\n"


@planted
@pytest.mark.usefixtures("short_windows")
def test_each_environment_runs_its_own_unstall(folder: Path, tmp_path: Path) -> None:
    """Two installs that differ by one constant: the program that measures loads no `unstall` of its own first."""
    (folder / "mine.py").write_text(COUNTS)
    rates = [
        measured(folder, "epoch", environment_with(tmp_path / str(images), images)).images_per_sec[EPOCH]
        for images in (99, 33)
    ]
    assert rates[0] / rates[1] == pytest.approx(3, rel=0.2)


def test_no_module_beside_the_program_has_a_name_that_the_program_imports() -> None:
    """Python puts the folder of a program on the path."""
    assert not {path.stem for path in Path(processes.__file__).parent.glob("*.py")} & sys.stdlib_module_names


def test_a_folder_that_hides_the_environments_package_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "mine.py").write_text(COUNTS)
    (folder / "unstall.py").write_text("IMAGES = 1\n")
    with pytest.raises(MeasureError, match="'unstall' was loaded from this folder, and the environment has one too"):
        measured(folder, "epoch", environment_with(tmp_path / "environment", 99))


@pytest.mark.long
@planted
def test_the_slower_environment_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("unstall.benchmarks.gate.processes._WINDOW_S", 0.02)
    pythons = [python_that_sleeps(folder, seconds) for seconds in (0.01, 0.02)]
    assert main(["compare", "--python", *pythons, "mine:epoch", "--out", "out"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "REGRESSION mine:epoch, B against mine:epoch, A: regression: images/sec 0.5" in printed
    assert "the environments have the same packages" in printed
    assert str(folder) not in (folder / "out" / "results.json").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mine:epoch"], "compare needs B as well."),
        (["main", "--rev"], "compare needs B as well."),
        (["--python", "nowhere", "nowhere", "mine:epoch"], "--python nowhere is no interpreter."),
        (["--python", sys.executable, sys.executable, "tf-data"], "compares one module:function in two environments"),
        (["mine:epoch", "mine:epoch", "--python", sys.executable, sys.executable], "Received: mine:epoch mine:epoch."),
        (["--python", sys.executable, sys.executable, "mine:epoch", "--measure", "train"], "leave out --measure"),
    ],
)
def test_wrong_words_are_one_line(words: list[str], message: str, folder: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder)
    assert main(["compare", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_the_packages_that_differ_are_named() -> None:
    sides = {"A": {"keras": "3.0.2", "numpy": "1.26", "old": "1"}, "B": {"keras": "3.0.3", "numpy": "1.26", "new": "2"}}
    measurements = tuple(
        Measurement(side=side, process=Process(rates={EPOCH: (100.0,)}, packages=packages))
        for side, packages in sides.items()
    )
    comparison = Comparison(question=GATE_QUESTION, measurements=measurements)
    [answer] = comparison_answers([ComparisonResult(name="x", comparison=comparison, decision=None)])
    assert answer.changes == (
        "the environments differ in keras 3.0.2 against 3.0.3, new none against 2, old 1 against none",
    )
