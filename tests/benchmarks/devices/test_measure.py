"""The parent's side: devices in turn, round by round; what refuses, dies or hangs is marked and the rest goes on."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.builders import EMULATED, GPU, MNIST
from tests.fakes import FakeDeviceChild as FakeChild
from unstall.benchmarks.devices import __main__ as devices
from unstall.benchmarks.devices import holder as devices_holder
from unstall.benchmarks.devices import measure
from unstall.benchmarks.devices.measure import Run
from unstall.benchmarks.devices.parser import parser
from unstall.benchmarks.devices.plan import Asked, read_plan
from unstall.benchmarks.devices.report import KIND, Results, derive
from unstall.benchmarks.devices.results import window_name
from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.command import progress_bar
from unstall.benchmarks.lab.options import UserError
from unstall.pipeline.commands.terminal import Stopped
from unstall.profiles.devices import CPU, Device

CIFAR = "cifar10-mlp, arrays, batch 32"


@pytest.fixture(autouse=True)
def fake_children(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, empty in (("asked", []), ("trouble", {}), ("started", []), ("ended", [])):
        monkeypatch.setattr(FakeChild, name, empty)
    monkeypatch.setattr(devices_holder, "Child", FakeChild)


def a_run(tmp_path: Path, *words: str, beside: tuple[Device, ...] = (EMULATED,)) -> tuple[Run, io.StringIO]:
    errors = io.StringIO()
    console = Console(file=errors, width=200)
    plan = read_plan(parser().parse_args(words), tmp_path)
    return Run(plan, None, [CPU, *beside], progress_bar(console), console), errors


def results_of(run: Run) -> Results:
    run.measure(lambda: None)
    return derive(run.document(complete=True))


def test_devices_take_turns_round_by_round_and_train_in_the_end(tmp_path: Path) -> None:
    run, _ = a_run(tmp_path, "--rounds", "2")
    run.measure(lambda: None)
    run.close()
    cpu, emulated = "cpu", EMULATED.name
    a_round = [
        *((cpu, what) for what in ("peak", "resident", "replay", "loader", "train", "predict")),
        *((emulated, what) for what in ("resident", "loader", "train")),
    ]
    asked = [(device, what) for device, _, what in FakeChild.asked]
    assert asked[:4] == [(cpu, "backend"), (emulated, "backend"), (cpu, "open"), (emulated, "open")]
    rounds = [asked[at : at + len(a_round)] for at in range(4, len(asked) - 1, len(a_round))]
    # In an order that is drawn anew, of the devices and of the windows of each.
    assert [sorted(one) for one in rounds] == [sorted(a_round)] * 2
    assert asked[-1] == (cpu, "train")
    assert FakeChild.ended == [cpu, emulated] and list(tmp_path.iterdir()) == []


def test_of_many_rounds_the_loader_alone_is_measured_in_three(tmp_path: Path) -> None:
    run, _ = a_run(tmp_path, "--rounds", "5", beside=())
    run.measure(lambda: None)
    assert [what for *_, what in FakeChild.asked].count("loader") == 3


def test_steps_that_cannot_be_seen_one_by_one_are_trained_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Asked, "cases", (replace(MNIST, steps_per_execution=4),))
    run, _ = a_run(tmp_path, beside=())
    (row,) = results_of(run).cases
    assert [what for *_, what in FakeChild.asked] == ["backend", "open", "peak", "peak", "peak", "train"]
    assert row.timing is None and row.images_per_sec == 500


@pytest.mark.parametrize("what", ["open", "peak", "resident", "train", "predict"])
def test_a_case_that_dies_on_a_device_is_left_out_there_and_the_rest_goes_on(tmp_path: Path, what: str) -> None:
    run, _ = a_run(tmp_path, "--experiment", "cifar10-mlp,mnist", "--rounds", "2")
    FakeChild.trouble[("cpu", CIFAR, what)] = ChildDied("it hung and was ended")
    results = results_of(run)
    run.close()
    assert [(one.who, one.reason) for one in run.document(complete=True).left_out] == [
        (f"{CIFAR} (cpu)", "it hung and was ended")
    ]
    assert FakeChild.started == ["cpu", EMULATED.name, "cpu"]
    measured = {(row.case.name, row.device.name) for row in results.cases}
    assert {(CIFAR, EMULATED.name), (MNIST.name, "cpu"), (MNIST.name, EMULATED.name)} <= measured
    # Its log is kept, to be looked at.
    assert [path.name for path in tmp_path.iterdir()] == ["cpu.log"]


def test_a_case_that_is_refused_needs_no_new_child(tmp_path: Path) -> None:
    run, _ = a_run(tmp_path, "--experiment", "cifar10-mlp,mnist", "--rounds", "1", beside=())
    FakeChild.trouble[("cpu", CIFAR, "open")] = JobRefused("no room")
    results = results_of(run)
    assert FakeChild.started == ["cpu"] and [row.case for row in results.cases] == [MNIST]
    assert [one.reason for one in run.document(complete=True).left_out] == ["no room"]


@pytest.mark.parametrize("error", [ChildDied("out of memory"), JobRefused("KERAS_BACKEND must be one of")])
def test_a_child_that_cannot_be_started_again_leaves_out_its_next_case(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = a_run(tmp_path, "--experiment", "cifar10-mlp,mnist", "--rounds", "1", beside=())
    FakeChild.trouble[("cpu", CIFAR, "open")] = ChildDied("out of memory")
    FakeChild.trouble[("cpu", "", "backend")] = error
    monkeypatch.setattr(run, "_start", lambda one: setattr(one, "_child", FakeChild("", CPU, tmp_path / "l")))
    run.measure(lambda: None)
    assert [one.who for one in run.document(complete=True).left_out] == [f"{CIFAR} (cpu)", f"{MNIST.name} (cpu)"]


def test_a_gpu_that_is_not_there_is_left_out_with_a_word(tmp_path: Path) -> None:
    run, errors = a_run(tmp_path, "--rounds", "1", beside=(GPU,))
    FakeChild.trouble[("gpu", "", "backend")] = JobRefused("there is no GPU that Keras can use here")
    results = results_of(run)
    assert "left out gpu: there is no GPU that Keras can use here" in errors.getvalue()
    assert [row.device.name for row in results.cases] == ["cpu"]
    console = Console(file=io.StringIO(), width=200)
    KIND.print(console, run.document(complete=True), results)
    assert "No GPU was measured (there is no GPU that Keras can use here)" in console.file.getvalue()  # type: ignore[attr-defined]


def test_without_a_cpu_there_is_nothing_to_compare(tmp_path: Path) -> None:
    run, _ = a_run(tmp_path)
    FakeChild.trouble[("cpu", "", "backend")] = JobRefused("KERAS_BACKEND must be one of tensorflow, jax")
    with pytest.raises(UserError, match="cpu: KERAS_BACKEND must be one of") as refused:
        run.measure(lambda: None)
    assert refused.value.exit_code == 3


def test_every_window_has_its_place_in_the_recording(tmp_path: Path) -> None:
    run, _ = a_run(tmp_path, "--rounds", "1", beside=())
    run.measure(lambda: None)
    telemetry = run.document(complete=True).telemetry
    assert telemetry is not None
    marks = telemetry.marks
    assert [mark.text for mark in marks if mark.phase] == ["start", MNIST.name]
    names = [mark.text.split(":")[0] for mark in marks if not mark.phase]
    assert names[:2] == ["open", "peak"] and names[6:] == ["predict", "epochs"]
    assert sorted(names[2:6]) == ["loader", "replay", "resident", "train"]
    assert window_name("train", MNIST, CPU) in [mark.text for mark in marks]


def test_the_command_writes_prints_and_ends_with_nought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "devices_here", lambda: (CPU, GPU))
    out = tmp_path / "out"
    assert devices.main(["--rounds", "3", "--emulate", "5000", "--details", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "GPU figures were measured here, with Keras on jax, H100." in shown and f"{out}/report.html" in shown
    assert "How busy the GPU was is unknown: nvidia-ml-py" in shown and "photos:" not in shown
    document = json.loads((out / "results.json").read_text())
    assert [row["keras_backend"] for row in document["results"]] == ["tensorflow", "jax", "tensorflow"]


def test_the_photos_are_named(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "devices_here", lambda: (CPU,))
    words = ["--experiment", "augmentation", "--rounds", "1", "--data", str(photos), "--details", "--out"]
    assert devices.main([*words, str(tmp_path / "out")]) == 0
    assert f"photos: {photos.name}, 40 of them" in capsys.readouterr().out


def test_a_command_that_is_stopped_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "devices_here", lambda: (CPU,))
    FakeChild.trouble[("cpu", MNIST.name, "train")] = Stopped(2)
    out = tmp_path / "out"
    words = ["--experiment", "feed-forward,mnist", "--rounds", "1", "--out", str(out)]
    assert devices.main(words) == 130
    assert f"stopped: what was measured so far is in {out}" in capsys.readouterr().err
    document = json.loads((out / "results.json").read_text())
    assert document["complete"] is False and document["results"][0]["model"] == "feed-forward"
    assert FakeChild.ended == ["cpu"]


def test_a_command_that_could_measure_nothing_says_why_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "devices_here", lambda: (CPU,))
    FakeChild.trouble[("cpu", MNIST.name, "open")] = JobRefused("no room")
    out = tmp_path / "out"
    assert devices.main(["--out", str(out)]) == 3
    assert f"nothing could be measured. {MNIST.name} (cpu): no room" in " ".join(capsys.readouterr().err.split())
