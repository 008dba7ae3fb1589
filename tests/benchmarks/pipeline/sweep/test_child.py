"""The process that measures a sweep: models opened in several ways, executions of several steps, bound cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import PROJECT_ROOT
from tests.builders import write_quick_modules
from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.lab.session import Job
from unstall.benchmarks.pipeline.sweep.axes import Place
from unstall.benchmarks.pipeline.sweep.child import SweepSession
from unstall.pipeline import VARIANTS, ImageSource, from_folder
from unstall.profiles.devices import CPU


def a_place(**changes: Any) -> Place:
    return Place(**{"variant": "tf-data", "config": VARIANTS["tf-data"], "model": "cats-dogs-64"} | changes)


def a_session(source: ImageSource, *places: Place) -> SweepSession:
    return SweepSession(CPU, source, None, {place.opened: place for place in places})


@pytest.fixture
def source(photos: Path) -> ImageSource:
    return from_folder(photos)


@pytest.mark.long
def test_a_model_takes_another_size_and_another_precision_and_the_rest_stays(source: ImageSource) -> None:
    import keras

    small, half, plain = a_place(image_size=32), a_place(precision="mixed_bfloat16"), a_place()
    session = a_session(source, small, half, plain)
    sizes = {place.opened: session.open_model(place.opened, 4, "cats-dogs-64").image_size for place in (small, half)}
    assert sizes == {small.opened: (32, 32), half.opened: (64, 64)}
    layers = session._models[half.opened].layers
    assert {layer.dtype_policy.name for layer in layers} == {"mixed_bfloat16"}
    # Of the model alone: the layers of loaders are built after it.
    assert keras.config.dtype_policy().name == "float32"
    session.open_model(plain.opened, 4, "cats-dogs-64")
    assert {layer.dtype_policy.name for layer in session._models[plain.opened].layers} == {"float32"}


def test_a_precision_that_a_function_sets_itself_is_refused(
    source: ImageSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in_float32.py").write_text(
        "import keras\n"
        "def build():\n"
        "    return keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(dtype='float32'),\n"
        "                             keras.layers.Dense(1, dtype='float32')])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    place = a_place(model="in_float32:build", precision="mixed_bfloat16")
    session = a_session(source, place)
    with pytest.raises(Refused, match="in_float32:build sets a precision of its own, so that mixed_bfloat16 changes"):
        session.open_model(place.opened, 4, place.model)


@pytest.mark.long
def test_an_execution_of_several_steps_trains_every_image_and_leaves_the_model_as_it_was(
    source: ImageSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(write_quick_modules(tmp_path)))
    config = VARIANTS["tf-data"].__class__(batch_size=4)
    place = a_place(model="mynet:build", config=config, steps_per_execution=3)
    session = a_session(source, place)
    facts = session.open_model(place.opened, 4, "mynet:build")
    assert facts.step_images_per_sec > 0
    job = Job(variant=place.variant, config=config, model=place.opened)
    prepared = session.prepare(job, 20)
    model = session._jobs[job].windows.model
    calls = []
    several = session._functions[job]
    monkeypatch.setitem(session._functions, job, lambda iterator: calls.append(1) or several(iterator))
    sample = session.window(job, "train", 1)
    assert (sample.window, sample.round, sample.epoch_images) == ("train", 1, prepared.images * sample.epochs)
    steps = -(-prepared.images // 4)
    assert len(calls) == sample.epochs * -(-steps // 3)  # three steps a call
    assert sample.whole_s_per_image(40) == pytest.approx(sample.epoch_ns / 1e9 / sample.epoch_images)
    assert model.steps_per_execution == 1
    assert session.window(job, "resident", 1).images > 0 and session.window(job, "loader", 1).images > 0
    session.close()


def test_an_epoch_without_so_many_steps_is_refused(source: ImageSource) -> None:
    place = a_place(steps_per_execution=64)
    session = a_session(source, place)
    job = Job(variant=place.variant, config=place.config, model=place.opened)
    with pytest.raises(Refused, match="an execution of 64 steps takes 2,048 of 40 images"):
        session.prepare(job, 40)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are bound on Linux")
def test_cores_are_bound_before_tensorflow_is_loaded() -> None:
    code = (
        "import os, sys\n"
        "from unstall.benchmarks.pipeline.sweep.child import SweepSession\n"
        "core = min(os.sched_getaffinity(0))\n"
        "SweepSession(None, None, (core,), {})\n"
        "print(os.sched_getaffinity(0) == {core}, 'tensorflow' in sys.modules, 'keras' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "True False False\n"
