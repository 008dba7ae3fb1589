"""`profiles.profile`: measurement, stages, verdict and report in one call."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.checks import details_of
from tests.planted import IMAGES, a_batch, a_model, planted, tensorflow_only
from unstall import profiles
from unstall.profiles import profiling
from unstall.profiles.measure import schedule
from unstall.profiles.profiling import Profile
from unstall.profiles.remedies import turns
from unstall.profiles.stages import lines, tf_stages


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the looks at the stages and lines short: what is planted here is exact enough."""
    for module, name, short in (
        (tf_stages, "ROUNDS", 2),
        (tf_stages, "RUN_S", 0.06),
        (tf_stages, "_WHOLE_BATCHES", 8),
        (tf_stages, "TAIL_S", 0.2),
        (lines, "SEARCH_S", 0.1),
        (lines, "LINES_S", 0.2),
        (schedule, "READY_WINDOW_S", 0.1),
    ):
        monkeypatch.setattr(module, name, short)


def doze(x: np.ndarray) -> np.ndarray:
    time.sleep(0.002)
    return x


def load(index: Any) -> Any:
    with tf.control_dependencies([tf.numpy_function(doze, [index], tf.int64)]):
        return tf.zeros((2, 2, 3)), tf.zeros(())


def profiled(images: int = 250, rounds: int = 2) -> Profile:
    dataset = tf.data.Dataset.range(images).map(load).batch(IMAGES)
    return profiles.profile(
        dataset, a_model(), device="emulated:2000", rounds=rounds, name="slow loader", lines=True, budget_s=0
    )


@pytest.mark.long
@planted
@tensorflow_only
def test_a_planted_loader_is_found_in_every_part_and_named_with_its_place() -> None:
    found = profiled()
    # 2 ms an image to load, 0.5 ms to train on.
    assert found.result.attribution.loading_ratio == pytest.approx(0.8, abs=0.06)
    assert found.result.stages is not None and found.result.stages.culprit is not None
    assert found.result.stages.culprit.wait_us_per_image == pytest.approx(2000, rel=0.15)
    (function,) = found.result.lines
    assert function.function.endswith("doze")
    text = " ".join(details_of(found).split())
    assert "slow loader on" in text and "input-bound" in text
    assert f"load (test_profiling.py:{load.__code__.co_firstlineno}) takes" in text
    assert "No other variant" not in text  # nothing was measured beside it


@pytest.mark.long
@tensorflow_only
def test_it_is_saved_as_results_and_report(tmp_path: Path) -> None:
    found = profiled(images=30, rounds=1)
    report = found.save(tmp_path / "out")
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    (result,) = document["results"]
    assert [stage["name"] for stage in result["stages"]][:1] == ["load"]
    assert document["verdicts"][0]["findings"]
    html = report.read_text()
    assert "time.sleep(0.002)" in html and "load" in html
    with pytest.raises(FileExistsError, match="holds results already"):
        found.save(tmp_path / "out")


def test_what_is_read_once_has_a_verdict_and_no_stages() -> None:
    def batches() -> Any:
        for _ in range(40):
            yield a_batch()

    found = profiles.profile(batches, a_model(), device="emulated:5000", rounds=1, budget_s=0)
    assert found.result.stages is not None
    assert found.result.stages.reason == "a function is read once, and from outside: only its waiting can be seen"


def test_data_of_other_kinds_and_samples_of_several_files_are_no_images() -> None:
    def batches() -> Any:
        for _ in range(40):
            yield a_batch()

    def lines_of_a_table() -> Any:
        for images, labels in batches():
            yield np.asarray(images).reshape(len(labels), -1), labels

    network = keras.Sequential([keras.Input((12,)), keras.layers.Dense(1)])
    network.compile("sgd", "mse")
    settings: dict[str, Any] = {"device": "emulated:5000", "rounds": 1}
    texts = [
        str(profiles.profile(batches, a_model(), **settings, budget_s=0)),
        str(profiles.profile(lines_of_a_table, network, **settings, budget_s=0)),
        str(profiles.profile(batches, a_model(), files_per_sample=2, **settings, budget_s=0)),
    ]
    assert [("img/s" in text, "samples/s" in text) for text in texts] == [(True, False), (False, True), (False, True)]


@pytest.mark.parametrize("seen_by", ["a terminal", "a notebook", "nobody"])
def test_it_says_how_far_it_is_where_somebody_sees_it(
    seen_by: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if seen_by == "a terminal":
        monkeypatch.setenv("FORCE_COLOR", "1")
    elif seen_by == "a notebook":
        monkeypatch.setattr(profiling, "get_console", lambda: SimpleNamespace(is_jupyter=True))
    photos = [a_batch() for _ in range(40)]
    profiles.profile(photos, a_model(), device="emulated:5000", rounds=2, budget_s=0)
    said = capsys.readouterr()
    assert said.out == ""
    assert ("measuring how long photos and sequential" in said.err) is (seen_by != "nobody")
    assert ("round 2 of 2" in said.err) is (seen_by == "a terminal")


def test_the_data_have_the_name_of_the_variable_in_the_call() -> None:
    settings: dict[str, Any] = {"device": "emulated:5000", "rounds": 1, "budget_s": 0}
    photos = [a_batch() for _ in range(40)]
    found = (
        profiles.profile(photos, a_model(), **settings),
        profiles.profile(model=a_model(), data=photos, **settings),
        profiles.profile(list(photos), a_model(), **settings),
        profiles.profile(photos, a_model(), name="my photos", **settings),
    )
    assert [one.document.plan.data for one in found] == ["photos", "photos", "data", "my photos"]
    text = str(found[0])
    assert "photos: sequential" in text and ".save(FOLDER)` writes them as report.html." in " ".join(text.split())


def test_a_sample_of_no_file_is_refused() -> None:
    with pytest.raises(ValueError, match="`files_per_sample` must be at least 1. Received: files_per_sample=0."):
        profiles.profile([], a_model(), files_per_sample=0)


@pytest.mark.long
@planted
@tensorflow_only
def test_remedies_are_tried_and_the_data_with_them_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_EPOCH_S", 0.1)
    monkeypatch.setattr(turns, "_WINDOW_S", 0.05)
    monkeypatch.setattr(turns, "_MOST_ROUNDS", 4)
    monkeypatch.setattr(turns, "_ROUNDS_AGAIN", 3)
    dataset = tf.data.Dataset.range(100).map(load).batch(IMAGES)
    found = profiles.profile(dataset, a_model(), device="emulated:2000", rounds=3, budget_s=20.0)
    # An image takes 2 ms to load and 0.5 ms to train on: at most 5 times as fast, if loading cost nothing.
    best = found.remedies[0]
    assert 2 < best.ratio < 7 and best.ci95 is not None and best.ci95[0] > 1
    assert found.fit_arguments is best.fit_arguments
    served, steps = found.fit_arguments["x"], found.fit_arguments.get("steps_per_epoch")
    assert served.element_spec == dataset.element_spec
    assert len(list(served.take(20))) == (10 if steps is None else 20) and steps in (None, 10)
    text = " ".join(details_of(found).split())
    assert "remedies for dataset" in text and f"times as fast ({best.ci95[0]:.2f} to" in text
    assert "apply it:" not in text
