"""A ladder's runs: the children that make them, and the command around them."""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
from unittest import mock

import numpy as np
import pytest
from rich.console import Console

from tests.builders import a_trained
from tests.builders import an_accuracy_plan as a_plan
from tests.fakes import FakeTrainingChild as FakeChild
from unstall.benchmarks.accuracy import __main__ as accuracy
from unstall.benchmarks.accuracy.child import RunSession, published_script
from unstall.benchmarks.accuracy.measure import Ladder, device_here
from unstall.benchmarks.accuracy.samples import Order, ScriptCount, State
from unstall.benchmarks.lab.backend import tf_device
from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.command import progress_bar
from unstall.benchmarks.lab.photos import held_out
from unstall.pipeline import from_folder
from unstall.pipeline.config import config_to_toml
from unstall.pipeline.variants import BASELINE, VARIANTS
from unstall.profiles.devices import CPU, Device
from unstall.profiles.report import LeftOut

GPU = Device(kind="gpu", name="gpu")


@pytest.fixture(scope="module")
def splits(photos):
    return held_out(from_folder(photos), seed=0)


def a_ladder(splits, tmp_path) -> Ladder:
    FakeChild.asked = []
    return Ladder(a_plan(rungs=("tutorial",)), splits, CPU, tmp_path / "log", no_bar())


def no_bar():
    return progress_bar(Console(quiet=True))


def test_a_run_that_fails_is_left_out_and_the_rest_goes_on(splits, tmp_path, monkeypatch):
    monkeypatch.setattr("unstall.benchmarks.accuracy.measure.Child", FakeChild)
    ladder, kept = a_ladder(splits, tmp_path), []
    ladder.measure(lambda: kept.append(ladder.document(complete=False)))
    document = ladder.document(complete=True)
    assert document.left_out == (LeftOut(who="tutorial, tuned, seed 0", reason="out of memory (MemoryError)"),)
    assert document.complete is False
    assert [(len(one.samples.runs), len(one.left_out)) for one in kept] == [(1, 0), (1, 1), (2, 1), (3, 1)]
    assert [order.passes for order in FakeChild.asked] == [2] * 4  # 32 photos
    assert [order.script for order in FakeChild.asked] == [True, False, False, True]


def test_a_run_that_trains_nothing_is_ended(splits, tmp_path, monkeypatch):
    class Stuck(FakeChild):
        def ask(self, method, *arguments, timeout_s):
            return State(images=32)

    times = iter(range(0, 10**15, 10**12))  # a look each 1,000 s
    monkeypatch.setattr("unstall.benchmarks.accuracy.measure.Child", Stuck)
    monkeypatch.setattr("unstall.profiles.clock.now_ns", lambda: next(times))
    ladder = Ladder(a_plan(rungs=("tutorial",), seeds=1), splits, CPU, tmp_path / "log", no_bar())
    ladder.measure(lambda: None)
    reasons = {left_out.reason for left_out in ladder.document(complete=True).left_out}
    assert reasons == {"nothing was trained for 1800 s: it hung and was ended"}


def test_a_session_tells_of_its_end_or_failure(splits):
    session = RunSession(CPU, splits.train, splits.test)
    worker = threading.Thread(target=session.work)
    worker.start()
    session.begin(Order(model="cats-dogs-64", config=VARIANTS["py-dataset"], passes=1, script=True))
    state = session.look()
    while state.trained is None and state.failure is None:
        state = session.look()
    session.close()
    worker.join(60)
    assert state.failure is None and (state.images, state.passes) == (32, 1)
    assert len(state.trained.right) == 8 and state.trained.passes[0].correct == state.trained.right.count("1")
    assert state.trained.script.images == 8
    failing = RunSession(GPU, splits.train, splits.test)
    worker = threading.Thread(target=failing.work)
    worker.start()
    failing.begin(Order(model="cats-dogs-64", config=BASELINE, passes=1, script=False))
    state = failing.look()
    while state.failure is None:
        state = failing.look()
    failing.close()
    worker.join(60)
    assert "there is no GPU that Keras can use here" in state.failure and "install the GPU build" in state.failure


def test_a_gpu_that_keras_cannot_use_leaves_the_cpu_to_train(capsys, tmp_path, photos, monkeypatch):
    on: list[Device] = []

    class NoGpu(FakeChild):
        def __init__(self, session, device, log, *arguments):
            super().__init__(session, device, log)
            self._device = device

        def ask(self, method, *arguments, timeout_s):
            if method == "backend":
                raise JobRefused("there is no GPU that Keras can use here")
            on.append(self._device)
            reply = super().ask(method, *arguments, timeout_s=timeout_s)
            return dataclasses.replace(reply, failure=None, trained=a_trained("11110000")) if reply else reply

    monkeypatch.setattr("unstall.benchmarks.accuracy.measure.Child", NoGpu)
    monkeypatch.setattr("unstall.benchmarks.accuracy.measure.devices_here", lambda: (CPU, GPU))
    out = tmp_path / "out"
    assert accuracy.main(["--data", str(photos), "--rungs", "tutorial", "--out", str(out)]) == 0
    assert "left out gpu: there is no GPU that Keras can use here" in " ".join(capsys.readouterr().err.split())
    assert json.loads((out / "results.json").read_text())["samples"]["device"] == "cpu" and set(on) == {CPU}


def test_a_gpu_that_was_asked_for_and_is_not_there_is_one_line(capsys, tmp_path, photos, monkeypatch):
    asked = []

    class NoGpu(FakeChild):
        def ask(self, method, *arguments, timeout_s):
            asked.append(method)
            raise JobRefused("there is no GPU that Keras can use here.")

    monkeypatch.setattr("unstall.benchmarks.accuracy.measure.Child", NoGpu)
    out = tmp_path / "out"
    assert accuracy.main(["--data", str(photos), "--device", "gpu", "--out", str(out)]) == 3
    assert capsys.readouterr().err == "--device gpu: there is no GPU that Keras can use here.\n"
    assert asked == ["backend"] and not out.exists()


def test_a_gpu_that_keras_can_use_trains(splits, tmp_path, monkeypatch):
    monkeypatch.setattr("unstall.benchmarks.accuracy.measure.Child", lambda *_: mock.Mock())
    monkeypatch.setattr("unstall.benchmarks.accuracy.measure.devices_here", lambda: (CPU, GPU))
    assert device_here(splits, tmp_path / "log", Console(quiet=True)) == GPU


@pytest.mark.parametrize(
    ("device", "backend", "expected"),
    [
        (CPU, "tensorflow", "/CPU:0"),
        (GPU, "tensorflow", "/GPU:0"),
        (GPU, "jax", "/CPU:0"),
    ],
)
def test_tf_data_prefetches_to_a_gpu_of_tensorflow_only(monkeypatch, device, backend, expected):
    monkeypatch.setattr("keras.backend.backend", lambda: backend)
    assert tf_device(device) == expected


def test_a_session_that_is_closed_before_it_was_asked_ends(splits):
    session = RunSession(CPU, splits.train, splits.test)
    session.close()
    session.work()


def test_the_published_script_counts_what_it_says(splits, monkeypatch):
    """A network that says 1 from a mean of 1 on: as published nearly all photos, corrected none."""
    import keras

    monkeypatch.setattr("unstall.benchmarks.accuracy.child._SCRIPT_BATCH", 3)  # the last of the 8 photos are fewer
    layers = [
        keras.Input((4, 4, 3)),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
    network = keras.Sequential(layers)
    network.layers[-1].set_weights([np.full((3, 1), 100.0, np.float32), np.array([-330.0], np.float32)])
    count = published_script(network, splits.test)
    second = int((splits.test.labels == 1).sum())
    assert count == ScriptCount(images=8, published_wrong=8 - second, corrected_wrong=second)
    assert published_script(keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Dense(3)]), splits.test) is None


def refusal(capsys, *words: str) -> tuple[int, str]:
    code = accuracy.main(list(words))
    return code, " ".join(capsys.readouterr().err.split())


def test_wrong_options_are_refused_in_a_line(capsys, tmp_path, photos, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = ("--data", str(photos))
    assert refusal(capsys, *data, "--seeds", "0") == (2, "--seeds must be at least 1. Received: 0.")
    assert refusal(capsys, *data, "--images-seen", "-3") == (2, "--images-seen must be at least 1. Received: -3.")
    assert "Did you mean 'deeper'?" in refusal(capsys, *data, "--rungs", "deepr")[1]
    assert "an emulated one learns nothing" in refusal(capsys, *data, "--device", "emulated:400")[1]
    (tmp_path / "other.toml").write_text(config_to_toml(dataclasses.replace(VARIANTS["tf-data"], batch_size=64)))
    assert (
        "`batch_size` must be the generator's, 32. Received: 64." in refusal(capsys, *data, "--config", "other.toml")[1]
    )
    (tmp_path / "none.toml").write_text(config_to_toml(VARIANTS["tf-data-no-augment"]))
    assert "`augmentation` must be the generator's" in refusal(capsys, *data, "--config", "none.toml")[1]
    assert list(tmp_path.glob("runs/*")) == []


def test_three_classes_are_refused(capsys, tmp_path, photos):
    for name in ("a", "b", "c"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(2):
            source = sorted(photos.rglob("*.jpg"))[number]
            (tmp_path / "data" / name / f"{number}.jpg").write_bytes(source.read_bytes())
    words = ("--data", str(tmp_path / "data"), "--out", str(tmp_path / "out"))
    assert refusal(capsys, *words) == (2, "--data must be of two classes. Received: 3.")


def test_a_ladder_that_is_stopped_keeps_what_has_ended(capsys, tmp_path, photos, monkeypatch):
    """A signal stops the third of four runs."""
    monkeypatch.setattr("unstall.benchmarks.accuracy.measure.Child", FakeChild)
    monkeypatch.setattr("unstall.benchmarks.accuracy.measure.devices_here", lambda: (CPU,))
    FakeChild.asked, out = [], tmp_path / "out"
    real, calls = FakeChild.ask, []

    def stopped_at_the_third(self, method, *arguments, timeout_s):
        if method == "begin":
            calls.append(method)
            if len(calls) == 3:
                signal.raise_signal(signal.SIGTERM)
        reply = real(self, method, *arguments, timeout_s=timeout_s)
        return dataclasses.replace(reply, failure=None, trained=a_trained("11110000")) if reply else reply

    monkeypatch.setattr(FakeChild, "ask", stopped_at_the_third)
    words = ["--data", str(photos), "--rungs", "tutorial", "--seeds", "2", "--out", str(out)]
    assert accuracy.main(words) == 128 + signal.SIGTERM
    assert f"stopped: what was measured so far is in {out}" in capsys.readouterr().err.replace("\n", "")
    kept = json.loads((out / "results.json").read_text())
    assert kept["complete"] is False and len(kept["samples"]["runs"]) == 2 and (out / "report.html").is_file()
    assert kept["difference"]["by_seed"] == [0.0] and kept["verdict"] == "not shown either way"
    assert accuracy.main(words) == 2  # it holds results
    assert "holds results.json already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tuned", "exit_code"),
    [
        (("11110000", "11110000", "11110000"), 0),
        (("10000000", "10000000", "10000000"), 1),
        (("11100000", "11110000", "11111000"), 4),
    ],
)
def test_the_exit_code_is_the_verdicts(tuned, exit_code, tmp_path, photos, monkeypatch):
    """The tuned pipeline's networks get those photos right, seed by seed, and the generator's always the same half."""

    class Planted(FakeChild):
        def ask(self, method, *arguments, timeout_s):
            reply = super().ask(method, *arguments, timeout_s=timeout_s)
            config = self._order.config
            right = tuned[config.seed] if config.loader == "tf_data" else "11110000"
            return dataclasses.replace(reply, failure=None, trained=a_trained(right)) if reply else None

    monkeypatch.setattr("unstall.benchmarks.accuracy.measure.Child", Planted)
    words = ["--data", str(photos), "--rungs", "tutorial", "--device", "cpu", "--out", str(tmp_path / "out")]
    assert accuracy.main(words) == exit_code


def test_a_ladder_without_a_run_is_exit_code_3(capsys, tmp_path, photos, monkeypatch):
    class Dies(FakeChild):
        def ask(self, method, *arguments, timeout_s):
            raise ChildDied("the process was killed")

    monkeypatch.setattr("unstall.benchmarks.accuracy.measure.Child", Dies)
    out = tmp_path / "out"
    assert accuracy.main(["--data", str(photos), "--out", str(out), "--device", "cpu"]) == 3
    assert "nothing could be measured. tutorial, generator, seed 0: the process was killed" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["children.log"]


@pytest.mark.slow
def test_a_tiny_ladder_trains_in_children_of_its_own(capsys, tmp_path, photos):
    out = tmp_path / "out"
    words = ["--data", str(photos), "--rungs", "tutorial", "--seeds", "2", "--images-seen", "64", "--device", "cpu"]
    code = accuracy.main([*words, "--out", str(out)])
    document = json.loads((out / "results.json").read_text())
    assert document["complete"] is True and code == 4
    runs = [ended["trained"] for ended in document["samples"]["runs"]]
    assert [len(run["passes"]) for run in runs] == [2] * 4
    assert all(len(run["right"]) == 8 for run in runs) and document["passes"] == 2
    assert [run["script"] is not None for run in runs] == [True, False, False, True]
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "results.json"]
    assert "over 2 seeds, and an interval needs 3." in " ".join(capsys.readouterr().out.split())
    assert (out / "report.html").read_text().count("<polyline") == 5  # and the published figure
