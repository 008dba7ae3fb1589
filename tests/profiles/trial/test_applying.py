"""Remedies put in place of what a script gives to `fit` or loops over: for each call its own, for as long as needed."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.builders import a_measurement_document, a_result, a_trial, samples_at
from unstall.profiles.code_line import CodeLine
from unstall.profiles.data.tf_data import TfDatasets
from unstall.profiles.remedies import AS_WRITTEN
from unstall.profiles.remedies.data import Failed
from unstall.profiles.report import write
from unstall.profiles.report.measurements import KIND, SCRIPT, Plan, derive
from unstall.profiles.trial import applying
from unstall.profiles.trial.applying import Applied, Wanted

PLACE = CodeLine(file="train.py", line=3)
X = np.arange(40, dtype=np.float32).reshape(40, 1)
Y, OTHER = X + 1, X + 100


def test_the_name_of_a_remedy_may_be_that_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cache").mkdir()
    assert applying.wanted("cache", "train.py") == (Wanted(names=("cache",)),)
    Path("cache", "results.json").write_text("{}")
    with pytest.raises(applying.ApplyError, match="--apply cache"):
        applying.wanted("cache", "train.py")


def applied(*names: str) -> Applied:
    return Applied([Wanted(names=names)])


def fit_arguments(**given: Any) -> dict[str, Any]:
    return {"x": X, "y": Y, "sample_weight": None, "batch_size": 8, "shuffle": False} | given


def labels_of(changed: dict[str, Any]) -> list[float]:
    return [float(label[0]) for _, labels in changed["x"] for label in labels]


def test_the_same_images_with_other_labels_are_other_data() -> None:
    remedies = applied("own-dataset")
    first = remedies.to_fit(PLACE, None, fit_arguments())
    second = remedies.to_fit(PLACE, None, fit_arguments(y=OTHER))
    assert labels_of(first) == Y[:, 0].tolist() and labels_of(second) == OTHER[:, 0].tolist()
    batches = remedies.to_fit(PLACE, None, fit_arguments(batch_size=20))["x"]
    assert len(batches) == 2


def test_what_is_held_out_is_validated_on() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse")
    given = fit_arguments(validation_split=0.25, validation_data=None)
    plain = dict(model.fit(**given, verbose=0).history)
    changed = applied("own-dataset").to_fit(PLACE, None, given)
    assert labels_of(changed) == Y[:30, 0].tolist()
    remedied = model.fit(**given | changed, verbose=0).history
    assert remedied.keys() == plain.keys() == {"loss", "val_loss"}
    assert [remedied[name] for name in plain] == [pytest.approx(losses) for losses in plain.values()]


def test_data_of_their_own_for_validation_leave_all_to_training() -> None:
    given = fit_arguments(validation_split=0.25, validation_data=(X, Y))
    changed = applied("own-dataset").to_fit(PLACE, None, given)
    assert labels_of(changed) == Y[:, 0].tolist() and "validation_data" not in changed


@pytest.mark.needs("torch")
def test_a_loader_that_the_script_drops_is_dropped_with_what_takes_its_place() -> None:
    from torch.utils.data import DataLoader

    remedies = applied("workers")
    for _ in range(3):
        loader = DataLoader(list(range(8)), batch_size=2)  # type: ignore[arg-type, var-annotated]
        changed = remedies.to_loop(PLACE, loader)
        assert changed.num_workers and remedies.to_loop(PLACE, loader) is changed
    del loader, changed
    gc.collect()
    assert not remedies._made


def test_a_dataset_that_the_script_drops_is_dropped_with_what_takes_its_place() -> None:
    remedies, data = applied("prefetch"), tf.data.Dataset.range(16).batch(4)
    changed, reference = remedies.to_loop(PLACE, data), weakref.ref(data)
    assert changed is not data and remedies.to_loop(PLACE, data) is changed
    del data, changed
    gc.collect()
    assert reference() is None and not remedies._made


def test_a_remedy_that_cannot_be_put_in_place_is_tried_once_for_the_same_data(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def fails(adapter: Any, data: Any, *_: Any, **settings: Any) -> None:
        tried.append(data)
        raise Failed("it has no length")

    monkeypatch.setattr(TfDatasets, "rebuilt", fails)
    remedies, data = applied("cache"), tf.data.Dataset.range(16)
    for _ in range(3):
        assert remedies.to_loop(PLACE, data) is data
    assert len(tried) == 1 and remedies.failed == {PLACE: "it has no length"} and not remedies.done


def test_arrays_that_the_script_changes_in_place_are_trained_on_as_they_are() -> None:
    remedies, labels = applied("own-dataset"), Y.copy()
    for _ in range(2):
        labels += 1
        changed = remedies.to_fit(PLACE, None, fit_arguments(y=labels))
        assert labels_of(changed) == labels[:, 0].tolist()


def test_neither_arrays_nor_their_copies_are_held() -> None:
    remedies = applied("own-dataset")
    for fold in range(3):
        assert remedies.to_fit(PLACE, None, fit_arguments(x=X[fold:], y=Y[fold:], validation_split=0.25))
        assert not remedies._made


def test_remedies_for_one_line_are_put_in_place_there_whatever_folder_the_script_lies_in() -> None:
    remedies = Applied([Wanted(names=("own-dataset",), place=PLACE)])
    here, elsewhere = (CodeLine(file=f"/home/me/{name}", line=3) for name in ("train.py", "other.py"))
    assert remedies.to_fit(here, None, fit_arguments()) and not remedies.to_fit(elsewhere, None, fit_arguments())
    assert remedies.done == {here: "own-dataset"}
    assert remedies.only(here) == ("own-dataset",) and remedies.only(elsewhere) == ()


def test_the_results_of_an_earlier_run_say_the_line_that_their_remedies_are_for(tmp_path: Path) -> None:
    name = "fit 1 (train.py:3)"
    trial = a_trial({AS_WRITTEN: samples_at(*[100.0] * 4), "cache": samples_at(*[200.0] * 4)})
    document = a_measurement_document(a_result(name, place=PLACE), command=SCRIPT, plan=Plan(rounds=3, data="train.py"))
    document = replace(document, samples=replace(document.samples, trials={name: trial}))
    write(tmp_path, document, KIND, derive(document))
    (wanted,) = applying.wanted(str(tmp_path), "train.py")
    assert (wanted.names, wanted.place) == (("cache",), PLACE) and len(wanted.rates) == 3
