"""Which `fit` of a script gets a table of stages, and what is said of a `fit` that cannot be watched."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.planted import planted
from unstall.profiles import __main__ as command
from unstall.profiles.measure import backends
from unstall.profiles.report.document import load
from unstall.profiles.report.measurements import KINDS, derive
from unstall.profiles.report.screen_lines import stages_line
from unstall.profiles.script.profiler import Profiler
from unstall.profiles.script.report import report_on
from unstall.profiles.trial import rereading
from unstall.profiles.trial.rereading import with_stages


def a_model() -> Any:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def a_dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((np.zeros((64, 4), np.float32), np.zeros(64, np.float32))).batch(8)


@pytest.mark.long
def test_two_fits_of_one_dataset_get_the_same_stages_and_other_data_get_their_own(watched: Profiler) -> None:
    data, other = a_dataset(), a_dataset().prefetch(1)
    a_model().fit(data, epochs=3, verbose=0)
    a_model().fit(other, epochs=3, verbose=0)
    a_model().fit(data, epochs=3, verbose=0)
    watched.pause()
    document, blocked = with_stages(report_on([watched], script="train.py"), [watched], lines=False)
    first, second, third = (measurement.stages for measurement in document.samples.subjects)
    assert not blocked and first is not None and second is not None
    assert first == third and [stage.name for stage in first.stages] == ["from_tensor_slices", "batch"]
    assert "prefetch" in [stage.name for stage in second.stages]


@planted
def test_a_generator_that_is_read_once_gets_the_lines_that_took_its_time(watched: Profiler) -> None:
    def batches() -> Iterator[Any]:
        while True:
            time.sleep(0.01)
            yield np.zeros((8, 4), np.float32), np.zeros(8, np.float32)

    a_model().fit(batches(), steps_per_epoch=40, epochs=2, verbose=0)
    watched.pause()
    document, _ = with_stages(report_on([watched], script="train.py"), [watched], lines=False)
    [measurement] = document.samples.subjects
    assert measurement.stages is not None and measurement.stages.reason is not None
    [line] = measurement.stages.lines
    assert line.location.startswith("test_rereading.py:") and line.code == "time.sleep(...)" and line.ratio > 0.8
    [verdict] = derive(document)
    why = stages_line(verdict.result)
    assert why is not None and why.text == f"{line.location} time.sleep(...) {line.ratio:.0%} of the loader's time."


def reported(watched: Profiler, out: Path, *words: str) -> command._Run:
    """Has the command report on what was watched, as behind a script, without trying remedies."""
    run = command._Run(command._parser().parse_args([*words, "--no-trial", "--details", "train.py"]), out)
    run._profilers, run._pid = [watched], os.getpid()
    run.report(None, 0)
    return run


def test_a_fit_on_a_backend_that_cannot_be_watched_is_named(
    watched: Profiler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    with monkeypatch.context() as patch:
        patch.delitem(backends.BACKENDS, "tensorflow")
        a_model().fit(a_dataset(), verbose=0)
    assert not watched.fits
    reported(watched, tmp_path)
    assert "nothing measured, the steps of Keras' tensorflow backend cannot be watched." in capsys.readouterr().err


@pytest.mark.long
def test_an_interrupted_reading_keeps_what_was_read_before(
    watched: Profiler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    quick, slow = a_dataset(), a_dataset().prefetch(1)
    a_model().fit(quick, epochs=3, verbose=0)
    a_model().fit(slow, epochs=3, verbose=0)
    within, readings = rereading._within, []

    def interrupted_in_the_second(limit_s: float, read: Any) -> Any:
        readings.append(read)
        if len(readings) == 2:
            raise KeyboardInterrupt
        return within(limit_s, read)

    monkeypatch.setattr(rereading, "_within", interrupted_in_the_second)
    assert reported(watched, tmp_path).blocked  # a thread may still read
    document, _ = load(tmp_path, KINDS)
    first, second = (measurement.stages for measurement in document.samples.subjects)
    assert [stage.name for stage in first.stages] == ["from_tensor_slices", "batch"]
    assert second.reason == "reading the data again was interrupted"
    printed = capsys.readouterr().err
    assert "stages of fit 1 (test_rereading.py:" in printed and "no stages: reading the data again was" in printed
    assert "\nMORE  " in printed


def test_a_sample_of_several_files_is_called_one(
    watched: Profiler, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    photos = np.zeros((64, 8, 8, 3), np.float32)
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    pairs = tf.data.Dataset.from_tensor_slices((photos, np.zeros(64, np.float32))).map(halved).batch(8)
    model.fit(pairs, epochs=3, verbose=0)
    reported(watched, tmp_path, "--files-per-sample", "2")
    printed = " ".join(capsys.readouterr().err.split())
    assert "us: microseconds per sample (2 files), one thing at a time" in printed
    assert "A sample (2 files) takes " in printed and "samples/s" in printed
    assert "One sample (2 files) takes " in (tmp_path / "report.html").read_text()


def halved(photo: Any, label: Any) -> Any:
    return photo / 2, label
