"""Batches of a PyDataset kept in memory: only where they stay the same, and written into the script as measured."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.checks import run_python
from unstall.profiles.remedies import reading_twice
from unstall.profiles.remedies.edits import edited
from unstall.profiles.remedies.keras import PY_DATASET_REMEDIES
from unstall.profiles.remedies.keras.py_dataset import PyDatasetData
from unstall.profiles.remedies.room import Room
from unstall.profiles.stages.places import Place

ROOM = Room(calls=2, memory_bytes=1e9, disk_bytes=1e9)


class Rows(keras.utils.PyDataset):
    made = 0

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        type(self).made += 1
        return np.full((4, 3), index, np.float32), np.arange(4)


class Shuffled(Rows):
    """As most people write it: another order after each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.order = np.arange(24)

    def __getitem__(self, index: int) -> Any:
        return self.order[4 * index : 4 * index + 4].copy(), np.arange(4)

    def on_epoch_end(self) -> None:
        np.random.default_rng(len(self.order)).shuffle(self.order)


class ShuffledFirst(Rows):
    def on_epoch_begin(self) -> None: ...


class Unseen(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.random.default_rng().random((4, 3)), np.arange(4)


class Reused(Rows):
    """Fills one buffer for each batch, which Keras has read by the time that the next is made."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros((4, 3), np.float32)

    def __getitem__(self, index: int) -> Any:
        self.buffer[:] = index
        return self.buffer, np.arange(4)


class Drawing(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.zeros((4, 3)) + (random.random() < 0.01), np.arange(4)


class Counting(Rows):
    calls = 0

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        return np.zeros((4, 3)), np.arange(4)


class Objects(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.array([{}, {}], object), np.arange(2)


@pytest.fixture(autouse=True)
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_twice, "_LEAST_NS", 0)


def opened(dataset: Any, *, room: Room = ROOM, **given: Any) -> PyDatasetData:
    settings: dict[str, Any] = {"has_epochs": True} | given
    return PyDatasetData(dataset, changes=PY_DATASET_REMEDIES, needs=("waiting",), room=room, **settings)


def found(data: PyDatasetData) -> Any:
    return next((remedy for remedy in data.remedies if remedy.name == "cache-samples"), None)


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (Shuffled(), "its `on_epoch_end` may change the batches from epoch to epoch"),
        (ShuffledFirst(), "its `on_epoch_begin` may change the batches from epoch to epoch"),
        (Unseen(), "batches differ when they are made again, and epochs would get the first one's"),
        (Drawing(), "making a batch draws random numbers, and epochs would get the first one's"),
        (Counting(), "making a batch changes `calls` of the data"),
        (Objects(), "they hold more than numbers and texts"),
        (Rows(workers=2, use_multiprocessing=True), "each would keep batches of its own"),
    ],
    ids=["shuffles", "shuffles first", "draws unseen", "draws", "counts", "objects", "processes"],
)
def test_batches_that_may_change_are_not_kept(dataset: Any, why: str) -> None:
    data = opened(dataset)
    assert found(data) is None
    [reason] = [one.reason for one in data.untried if one.name == "cache-samples"]
    assert why in reason


def test_nothing_is_kept_for_a_single_epoch_and_not_more_than_fits() -> None:
    assert found(opened(Rows(), has_epochs=False)) is None
    small = opened(Rows(), room=Room(calls=2, memory_bytes=100, disk_bytes=0))
    assert found(small) is None and "more than 0 MB of memory" in small.untried[0].reason


def test_each_batch_is_made_once_and_is_what_it_was() -> None:
    data = opened(Rows())
    assert found(data).warms_up and found(data).memory_bytes == 6 * (4 * 3 * 4 + 4 * 8)
    assert data.compared(("cache-samples",)).effect == "identical"
    Rows.made = 0
    kept = data.whole(("cache-samples",))
    epochs = [[kept[index][0].tolist() for index in range(len(kept))] for _ in range(3)]
    assert Rows.made == 6 and epochs[0] == epochs[1] == epochs[2]
    assert epochs[0] == [Rows()[index][0].tolist() for index in range(6)]


def test_a_buffer_that_is_filled_again_is_kept_as_it_was() -> None:
    kept = opened(Reused()).whole(("cache-samples",))
    assert [kept[index][0][0, 0] for index in (*range(6), *range(6))] == [*range(6), *range(6)]


SCRIPT = """
import numpy as np
import tensorflow as tf
from tensorflow.keras import layers


class Rows(tf.keras.utils.Sequence):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return np.full((4, 3), index / 6, np.float32), np.ones((4, 1), np.float32)


tf.keras.utils.set_random_seed(3)
model = tf.keras.Sequential([tf.keras.Input((3,)), layers.Dense(1)])
model.compile("sgd", "mse")
data = Rows(workers=WORKERS)
history = model.fit(data, epochs=3, verbose=0)
print(history.history["loss"])
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_script_with_the_edit_trains_as_it_did(workers: int, tmp_path: Path) -> None:
    script, new = tmp_path / "train.py", tmp_path / "edited.py"
    script.write_text(SCRIPT.replace("WORKERS", str(workers)))
    line = next(number for number, text in enumerate(script.read_text().splitlines(), 1) if ".fit(" in text)
    text = script.read_text().splitlines()[line - 1]
    place = Place(file=str(script), line=line, end_line=line, end_column=len(text), called="fit")
    edits = found(opened(Rows(), place=place, name="data")).edits
    new.write_text(edited(script.read_text(), edits))
    assert "fit(KeptBatches(data), epochs=3" in new.read_text() and "unstall" not in new.read_text()
    assert len(edits[0].text.splitlines()) <= 30
    before, after = run_python(tmp_path, script.name), run_python(tmp_path, new.name)
    assert after.returncode == 0, after.stderr
    assert after.stdout == before.stdout and before.stdout.startswith("[")
