"""The child's side, in this process and on a real CPU: cases of photos and of arrays, refused or measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from tests.builders import GPU
from tests.checks import passes_on_jax
from tests.planted import planted
from unstall.benchmarks.devices import __main__ as devices
from unstall.benchmarks.devices.check import CheckSession, check
from unstall.benchmarks.devices.child import DeviceSession
from unstall.benchmarks.devices.experiments import BEST, Case, arrays, photos
from unstall.benchmarks.devices.feeds import Feeds, Sources
from unstall.benchmarks.devices.samples import CaseFacts
from unstall.benchmarks.lab.backend import Refused, open_backend
from unstall.pipeline.sources.folder import from_folder
from unstall.profiles.devices import CPU, Device
from unstall.profiles.measure.schedule import epochs_for

TRAIN, TEST = 90, 20
FAST = Device(kind="emulated", name="emulated:100000", images_per_sec=1e5)


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Few digits, in a file of MNIST's form."""
    random = np.random.default_rng(0)
    parts = {
        f"{axis}_{split}": random.integers(0, high, (count, *shape)).astype(np.uint8)
        for split, count in (("train", TRAIN), ("test", TEST))
        for axis, high, shape in (("x", 256, (28, 28)), ("y", 10, ()))
    }
    path = tmp_path_factory.mktemp("mnist") / "mnist.npz"
    np.savez(path, **parts)
    return str(path)


@pytest.fixture(scope="module")
def sources(mnist: str, photos: Path) -> Sources:
    return Sources(photos=from_folder(photos), arrays={"mnist": mnist}, download=False)


@pytest.fixture
def session(sources: Sources) -> Iterator[DeviceSession]:
    session = DeviceSession(CPU, sources)
    yield session
    session.close()
    keras.config.set_dtype_policy("float32")


SMALL = arrays("mnist-digits", 16)


@pytest.fixture(scope="module")
def opened(sources: Sources) -> Iterator[tuple[DeviceSession, CaseFacts]]:
    """A session in which a case of arrays is open, and what it said of it."""
    session = DeviceSession(CPU, sources)
    assert session.backend()["keras_backend"] == "tensorflow"
    yield session, session.open(SMALL)
    session.close()
    keras.config.set_dtype_policy("float32")


def test_arrays_are_served_in_part_or_whole_and_tested_on_what_was_held_back(sources: Sources) -> None:
    feeds = Feeds(sources)
    part, whole = feeds.open(SMALL, batches=2), feeds.open(SMALL, batches=1000)
    assert (part.served, part.examples, whole.served, whole.classes) == (32, TRAIN, TRAIN, 10)
    assert [images.shape for images, _ in part.data] == [(16, 28, 28, 1)] * 2
    assert sum(len(labels) for _, labels in part.validation) == TEST
    assert not part.generated and "from a file given" in part.notes[0]


def test_all_examples_in_one_batch_are_one_step(sources: Sources) -> None:
    feed = Feeds(sources).open(replace(SMALL, batch_size=None), batches=3)
    assert [len(labels) for _, labels in feed.data] == [TRAIN]


def test_images_that_are_larger_than_the_network_takes_are_cropped(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    path = tmp_path / "cifar.npz"
    parts = {f"x_{split}": random.integers(0, 256, (20, 32, 32, 3)).astype(np.uint8) for split in ("train", "test")}
    labels = {f"y_{split}": np.arange(20) % 10 for split in ("train", "test")}
    np.savez(path, **parts, **labels)
    feeds = Feeds(Sources(photos=None, arrays={"cifar10": str(path)}, download=False))
    sides = {
        model: next(iter(feeds.open(arrays(model, 4), batches=1).data))[0].shape
        for model in ("cifar10-cnn", "cifar10-mlp")
    }
    assert sides == {"cifar10-cnn": (4, 24, 24, 3), "cifar10-mlp": (4, 32, 32, 3)}


def test_photos_come_in_the_size_of_the_network(sources: Sources) -> None:
    with Feeds(sources).open(photos("cats-dogs-128", BEST), batches=1) as feed:
        assert next(iter(feed.data))[0].shape == (32, 128, 128, 3)
        assert (feed.examples, feed.served, feed.classes, feed.validation) == (40, 32, 2, None)


def test_data_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mnist.npz"
    path.write_bytes(b"no archive")
    with pytest.raises(Refused, match="mnist.npz"):
        Feeds(Sources(photos=None, arrays={"mnist": str(path)}, download=False)).open(SMALL, batches=1)


@pytest.mark.long
def test_a_case_of_arrays_is_measured_from_its_windows_to_its_accuracy(opened: tuple[DeviceSession, CaseFacts]) -> None:
    session, facts = opened
    assert (facts.examples, facts.batch_size, facts.validated, facts.data) == (TRAIN, 16, True, "mnist")
    # 26x26x32 outputs of 9 inputs, 11x11x64 of 288, 1,600 to 10.
    assert facts.work.forward_flops == 2 * (26 * 26 * 32 * 9 + 11 * 11 * 64 * 288 + 1600 * 10)
    assert facts.warmup is not None and facts.warmup.epoch_images == TRAIN
    for name in ("resident", "replay", "loader", "train"):
        sample = session.window(name, 2)
        assert (sample.window, sample.round) == (name, 2)
    assert session.predict() > 0
    assert session.peak().precision == "float32" and session.peak().flops_per_sec > 0
    epochs = session.train(2, 60.0)
    assert [one.examples for one in epochs] == [TRAIN, TRAIN]
    assert all(one.seconds > 0 and one.accuracy is not None and 0 <= one.accuracy <= 1 for one in epochs)
    assert epochs[0].traced_s > 0


def test_windows_of_a_gpu_hold_epochs_enough_to_tell_how_busy_it_is(sources: Sources) -> None:
    session = DeviceSession(GPU, sources)  # the CPU does its work here
    warmup = session.open(SMALL).warmup
    assert warmup is not None and session._opened is not None and session._opened.split is not None
    assert session._opened.split.epochs == epochs_for(warmup, 3.0) > epochs_for(warmup)
    session.close()


def test_an_epoch_that_would_take_too_long_is_cut_short(opened: tuple[DeviceSession, CaseFacts]) -> None:
    session, _ = opened
    (epoch,) = session.train(1, 1e-9)
    assert epoch.examples == 48  # three batches


def test_a_warm_up_that_a_gpu_has_not_ended_does_not_say_how_long_an_epoch_is(
    opened: tuple[DeviceSession, CaseFacts], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = opened
    assert session._opened is not None and session._opened.split is not None
    monkeypatch.setattr(session._opened.split, "step_s", 1.0)
    (epoch,) = session.train(1, 4.0)
    assert epoch.examples == 64  # four batches of a second each


@pytest.mark.slow
def test_a_case_of_photos_is_measured_in_half_precision(session: DeviceSession) -> None:
    facts = session.open(replace(photos("cats-dogs-64", "generator"), precision="mixed_bfloat16"))
    assert (facts.examples, facts.data, facts.validated) == (40, session._feeds._sources.photos.name, False)
    assert facts.notes == ("draws come from NumPy's global random state",)
    assert session._opened is not None and session._opened.model.compute_dtype == "bfloat16"
    assert session.window("train", 0).images > 0


@pytest.mark.slow
def test_several_steps_in_an_execution_are_trained_and_not_split(session: DeviceSession) -> None:
    facts = session.open(replace(SMALL, steps_per_execution=2))
    assert (facts.step_s, facts.warmup) == (None, None) and facts.step_bytes > 0
    (epoch,) = session.train(1, 60.0)
    assert epoch.examples == TRAIN


@planted
def test_an_emulated_device_sleeps_and_has_no_executions(sources: Sources) -> None:
    session = DeviceSession(FAST, sources)
    facts = session.open(SMALL)
    assert (
        16 / 1e5 <= facts.step_s < 0.02
    )  # a sleep overshoots, and Keras 3.8 takes some milliseconds for a step of its own
    assert session.window("resident", 0).images > 0
    with pytest.raises(Refused, match="an emulated device has no executions that could hold several steps"):
        session.open(replace(SMALL, steps_per_execution=2))
    session.close()
    assert session._opened is None


@pytest.mark.slow
def test_another_case_closes_the_one_before(session: DeviceSession) -> None:
    ram = photos("cats-dogs-64", "generator-ram")
    session.open(ram)
    assert session._opened is not None and session._opened.split is not None
    folders = session._opened.split.feed.loader.folders  # type: ignore[union-attr]
    assert folders and all(folder.exists() for folder in folders)
    session.open(SMALL)
    assert not any(folder.exists() for folder in folders)


@pytest.mark.slow
def test_real_children_are_measured_side_by_side(mnist: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--rounds", "1", "--epochs", "1", "--emulate", "50000", "--arrays", f"mnist={mnist}", "--out", str(out)]
    assert devices.main(words) == 0
    rows = json.loads((out / "results.json").read_text())["results"]
    assert [row["device"]["kind"] for row in rows] == ["cpu", "emulated"]
    assert rows[0]["peak_ratio"] > 0 and rows[0]["epochs"][0]["examples"] == TRAIN
    assert rows[0]["machine"]["train"]["cpu_ratio"] is not None
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "results.json"]


@pytest.mark.parametrize(
    ("backend", "device", "message"),
    [
        ("tensorflow", Device(kind="gpu", name="gpu"), "there is no GPU that Keras can use"),
        ("torch", CPU, "KERAS_BACK"),
    ],
)
def test_a_device_or_backend_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, backend: str, device: Device, message: str
) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    with pytest.raises(Refused, match=message):
        open_backend(device)


def test_the_check_computes_on_every_device_that_is_seen() -> None:
    session = CheckSession()
    assert session.built()["Keras"].endswith(f"backend {keras.backend.backend()}")
    seen = session.devices()
    assert any("CPU" in name for _, name in seen)
    assert all(session.compute(*one) > 0 for one in seen)


def test_the_check_names_every_device_of_jax_and_not_those_of_its_fastest_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = {name: SimpleNamespace(devices=lambda name=name: [f"{name}:0"]) for name in ("cuda", "cpu")}
    extend = SimpleNamespace(backend=SimpleNamespace(backends=lambda: clients))
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(extend=extend, devices=lambda: ["cuda:0"]))
    monkeypatch.setitem(sys.modules, "jax.extend", extend)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    assert [name for library, name in CheckSession().devices() if library == "JAX"] == ["cuda:0", "cpu:0"]


@pytest.mark.claims
@pytest.mark.needs("jax")
def test_the_check_computes_on_jax() -> None:
    passes_on_jax(__file__, "every_device_that_is_seen")


def test_a_wrong_product_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from unstall.benchmarks.devices import check as devices_check

    monkeypatch.setattr(devices_check, "_on_tensorflow", lambda name: np.zeros((64, 64), np.float32))
    with pytest.raises(ValueError, match=r"a product of ones must be 64 everywhere\. Received: 0\.0"):
        CheckSession().compute("TensorFlow", "/device:CPU:0")


class FakeCheck:
    """Has a CPU, and a GPU whose driver kills the process."""

    def __init__(self, *_: Any) -> None:
        pass

    def ask(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        from unstall.benchmarks.lab.child import ChildDied

        if method == "compute" and "GPU" in arguments[1]:
            raise ChildDied("the process died of signal SIGSEGV")
        cpu, gpu = ("TensorFlow", "/device:CPU:0"), ("TensorFlow", "/device:GPU:0")
        return {"built": {"Keras": "3"}, "devices": [gpu, cpu], "compute": 0.005}[method]

    def close(self) -> None:
        pass


def test_a_signal_ends_a_child_that_computes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from unstall.benchmarks.devices import check as devices_check
    from unstall.pipeline.commands import Stopped

    ended = []

    class Computing(FakeCheck):
        def ask(self, method: str, *arguments: Any, timeout_s: float) -> Any:
            if method == "compute":
                raise Stopped(2)
            return super().ask(method, *arguments, timeout_s=timeout_s)

        def close(self) -> None:
            ended.append("closed")

        def kill(self) -> None:
            ended.append("killed")

    monkeypatch.setattr(devices_check, "Child", Computing)
    with pytest.raises(Stopped):
        check(Console(quiet=True))
    assert ended == ["killed", "closed"]


def test_a_device_that_does_not_compute_is_found_and_the_others_are_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    from unstall.benchmarks.devices import check as devices_check

    monkeypatch.setattr(devices_check, "Child", FakeCheck)
    assert check(Console()) == 1
    shown = capsys.readouterr().out
    assert "GPU:0: fails: the process died of signal SIGSEGV" in shown
    assert "CPU:0: computes, 5 ms for the first product" in shown and "No GPU is seen" not in shown


def test_all_cases_can_be_sent_to_a_child() -> None:
    import multiprocessing.reduction

    from unstall.benchmarks.devices.experiments import EXPERIMENTS

    pickler = multiprocessing.reduction.ForkingPickler
    for case in {case for one in EXPERIMENTS.values() for case in one.cases}:
        assert isinstance(case, Case) and pickler.loads(pickler.dumps(case)) == case
