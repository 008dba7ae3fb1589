"""What is not an image is not called one, wherever the results of a script are shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.checks import tables_of
from unstall.profiles.data.torch import DataLoaders
from unstall.profiles.devices import CPU
from unstall.profiles.report.codec import decode, encode
from unstall.profiles.report.measurements import KIND, MeasurementDocument
from unstall.profiles.results.subject import Subject
from unstall.profiles.script.profiler import Profiler
from unstall.profiles.script.report import report_on
from unstall.profiles.stages import tf_stages
from unstall.profiles.trial.rereading import with_stages
from unstall.profiles.unit import IMAGE, SAMPLE

_IMAGE = re.compile(r"\bimages?\b|\bimg\b", re.IGNORECASE)


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the looks at the stages short: what is asked here is how they are called."""
    for name, short in (("ROUNDS", 1), ("RUN_S", 0.03), ("_WHOLE_BATCHES", 4), ("TAIL_S", 0.2)):
        monkeypatch.setattr(tf_stages, name, short)


def a_model(*shape: int, **settings: Any) -> Any:
    model = keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **settings)
    return model


def a_dataset(*shape: int) -> tf.data.Dataset:
    data = tf.data.Dataset.from_tensor_slices((np.zeros((64, *shape), np.float32), np.zeros(64, np.float32)))
    return data.map(lambda inputs, label: (inputs, label)).batch(8)


class Rows(keras.utils.PyDataset):
    """A table, read by Keras' own loader."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return np.zeros((8, 5), np.float32), np.zeros(8, np.float32)


def measured(watched: Profiler) -> MeasurementDocument:
    watched.pause()
    document, _ = with_stages(report_on([watched], script="train.py"), [watched], lines=False)
    return document


def seen_on(page: str) -> str:
    """Returns the text of a page without its markup and style."""
    return re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)


FITS: dict[str, Callable[[], None]] = {
    "a tf.data.Dataset": lambda: a_model(5).fit(a_dataset(5), epochs=4, verbose=0),
    "several steps in a call": lambda: a_model(5, steps_per_execution=4).fit(a_dataset(5), epochs=4, verbose=0),
    "NumPy arrays": lambda: a_model(5).fit(np.zeros((64, 5)), np.zeros(64), epochs=4, verbose=0),
    "a PyDataset": lambda: a_model(5).fit(Rows(), epochs=4, verbose=0),
}


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_rows_of_a_table_are_samples_on_the_terminal_and_the_page(watched: Profiler, fit: Callable[[], None]) -> None:
    fit()
    document = measured(watched)
    texts = [
        tables_of(KIND, document, 100),
        tables_of(KIND, document),
        seen_on(KIND.page(document, KIND.derive(document))),
    ]
    for text in texts:
        assert not _IMAGE.findall(text), text
    assert "samples/s" in texts[0]


def test_images_are_images(watched: Profiler) -> None:
    # Large enough that reading an image takes some microseconds: cheaper stages have no row.
    a_model(96, 96, 3).fit(a_dataset(96, 96, 3), epochs=4, verbose=0)
    document = measured(watched)
    text = tables_of(KIND, document, 100)
    assert "img/s" in text and "microseconds per image" in text
    assert "images/sec" in seen_on(KIND.page(document, KIND.derive(document)))


def test_a_file_of_before_there_were_units_is_one_of_images() -> None:
    subject = Subject(variant="fit 1", model="m", device=CPU, batch_size=8, unit=SAMPLE)
    fields = encode(subject)
    assert decode(Subject, fields) == subject
    del fields["unit"]
    assert decode(Subject, fields).unit == IMAGE


def test_a_loop_over_a_data_loader_has_channels_on_the_second_axis() -> None:
    pixels, labels = np.zeros((8, 3, 6, 6)), np.zeros(8)
    source = DataLoaders()
    assert source.unit_in((pixels, labels)) == source.unit_in({"pixels": pixels}) == IMAGE
    assert source.unit_in((pixels[:, :2], labels)) == source.unit_in([]) == source.unit_in(None) == SAMPLE
