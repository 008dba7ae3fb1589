"""Remedies for a PyDataset and for arrays: equal batches, settings, the code to write."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.builders import given_to_fit
from unstall import forks
from unstall.profiles.measure.batches import FitData
from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.data import Failed
from unstall.profiles.remedies.edits import reads_as
from unstall.profiles.remedies.keras import ARRAY_REMEDIES, PY_DATASET_REMEDIES
from unstall.profiles.remedies.keras.array_data import ArrayData
from unstall.profiles.remedies.keras.processes import forks_draw_alike
from unstall.profiles.remedies.keras.py_dataset import PyDatasetData
from unstall.profiles.remedies.remedy import Remedy
from unstall.profiles.remedies.room import Room
from unstall.profiles.stages.places import Place
from unstall.profiles.trial.held_fit import measure_with

IMAGES = np.random.default_rng(0).random((64, 4)).astype(np.float32)
LABELS = np.arange(64, dtype=np.float32)
ROOM = Room(calls=2, memory_bytes=1e9, disk_bytes=1e9)


class Drawing(keras.utils.PyDataset):
    """Batches with random numbers of NumPy's own state."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return IMAGES[:8] + np.random.random((8, 4)).astype(np.float32), LABELS[:8]


class Batches(keras.utils.PyDataset):
    """Batches of arrays; with `draws` of other values each time, with `shared` from a state that all threads change."""

    def __init__(self, draws=False, shared=False, **settings):
        super().__init__(**settings)
        self.draws, self.shared, self.made, self.ended = draws, shared, [], 0
        self.both = threading.Barrier(2, timeout=10) if shared else None

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.made.append(index)
        images = IMAGES[8 * index : 8 * index + 8]
        if self.draws:
            images = images + np.random.default_rng().random(images.shape).astype(np.float32)
        if self.shared and threading.current_thread() is not threading.main_thread():
            self.index = index
            self.both.wait()  # both threads have written by now
            images = images + np.float32(self.index)
        return images, LABELS[8 * index : 8 * index + 8]

    def on_epoch_end(self):
        self.ended += 1


def py_data(dataset, needs=("waiting",), changes=PY_DATASET_REMEDIES, **settings):
    return PyDatasetData(dataset, changes=changes, needs=needs, room=ROOM, **settings)


def test_workers_threads_and_processes_are_offered_and_serve_the_same_batches():
    data = py_data(Batches())
    assert (data.epoch_batches, data.epoch_images) == (8, 64)
    assert [remedy.name for remedy in data.remedies] == ["workers", "more-workers", "processes"]
    assert {name: data.compared((name,)).effect for name in ("workers", "processes")} == {
        "workers": "identical",
        "processes": "identical",
    }
    built = data.built(("more-workers",), 99)
    assert (built.workers, built.use_multiprocessing, built.max_queue_size, len(built)) == (8, False, 10, 8)
    assert data.whole(("processes",)).use_multiprocessing
    as_written = data.built((), 3)
    assert (as_written.workers, len(as_written)) == (1, 3)


def test_processes_come_with_the_line_that_keeps_them_from_garbage_of_tensorflow():
    place = Place(file="train.py", line=4, end_line=4, end_column=23)
    data = py_data(Batches(), name="data", place=place)
    lines = {remedy.name: [edit.text for edit in remedy.edits] for remedy in data.remedies}
    assert lines["processes"][0] == forks.LINE and "data.use_multiprocessing = True" in lines["processes"]
    assert forks.LINE not in lines["workers"] + lines["more-workers"]


def test_a_dataset_with_workers_already_gets_more_or_processes():
    names = [remedy.name for remedy in py_data(Batches(workers=4)).remedies]
    assert names == ["more-workers", "processes"]


@pytest.mark.parametrize("needs", [("waiting",), ("interference",), ("edges",)])
def test_processes_may_be_too_many_or_threads_do_as_well(needs):
    data = py_data(Batches(workers=4, use_multiprocessing=True), needs=needs)
    assert [remedy.name for remedy in data.remedies] == ["fewer-workers", "threads"]
    built = [data.built((name,), 8) for name in ("fewer-workers", "threads")]
    assert [(one.workers, one.use_multiprocessing) for one in built] == [(2, True), (2, False)]
    assert data.compared(("threads",)).effect == "identical"


def test_workers_end_the_tuner_of_a_dataset_that_loses_time_at_the_edges_of_epochs():
    data = py_data(Batches(), needs=("edges",))
    assert data.edges_by and [(remedy.name, remedy.ends_edges) for remedy in data.remedies] == [("workers", True)]
    data = py_data(Batches(workers=4), needs=("edges",))
    assert data.edges_by is None and data.remedies == ()


def test_what_the_dataset_does_at_the_end_of_an_epoch_is_done():
    dataset = Batches()
    built = py_data(dataset).built(("workers",), 8)
    built.on_epoch_begin()
    built.on_epoch_end()
    assert dataset.ended == 1


def test_a_state_that_threads_share_breaks_the_claim():
    assert py_data(Batches(shared=True)).compared(("workers",)).effect == "other draws"


def test_processes_that_would_all_draw_the_same_are_not_offered():
    photos = np.random.default_rng(0).random((16, 8, 8, 3)).astype(np.float32)
    generator = tf.keras.preprocessing.image.ImageDataGenerator(horizontal_flip=True, rotation_range=40)
    for data in (Drawing(), generator.flow(photos, batch_size=8, seed=3)):
        remedies = py_data(data)
        assert "processes" not in [remedy.name for remedy in remedies.remedies]
        assert "would draw alike" in remedies.untried[0].reason
        before = np.random.get_state()[1].tolist(), getattr(data, "total_batches_seen", None)
        assert forks_draw_alike(data)
        assert (np.random.get_state()[1].tolist(), getattr(data, "total_batches_seen", None)) == before
    assert "processes" in [remedy.name for remedy in py_data(Batches(draws=True)).remedies]  # from the system


def test_an_epoch_that_gets_longer_is_served_whole():
    data = Batches()
    whole = py_data(data).whole(("workers",))
    assert len(whole) == 8
    data.__class__ = type("Longer", (Batches,), {"__len__": lambda self: 5})
    assert whole.num_batches == len(whole) == 5


def test_draws_are_not_compared_and_that_is_noted():
    data = py_data(Batches(draws=True))
    assert data.compared(("workers",)).effect == "identical"
    assert data.notes[0].startswith("The data differ from one reading to the next")


def test_the_variable_of_the_script_is_set_in_front_of_fit(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("train = 3\nmodel.fit(train, epochs=3)\n")
    place = Place(file=str(path), line=2, end_line=2, end_column=26)
    data = given_to_fit({"x": Batches()}, ["waiting"], place=place, room=ROOM)
    [workers, *_] = data.remedies
    assert workers.code == "train.workers = 2\ntrain.max_queue_size = 10"
    assert workers.place == "train.py:2"
    assert [edit.text for edit in workers.edits] == ["train.workers = 2", "train.max_queue_size = 10"]


def test_the_settings_are_those_of_the_variable_where_no_fit_is_known():
    [workers, *_] = given_to_fit({"x": Batches()}, ["waiting"], name="rows", room=ROOM).remedies
    assert workers.code == "rows.workers = 2\nrows.max_queue_size = 10" and workers.edits == ()


def arrays(changes=ARRAY_REMEDIES, **arguments):
    given = {"x": IMAGES, "y": LABELS, "batch_size": 8, **arguments}
    return ArrayData(given, changes=changes, needs=("edges",))


def test_arrays_are_cut_as_keras_cuts_them():
    data = arrays()
    assert (data.epoch_batches, data.epoch_images) == (8, 64)
    built = data.built((), 3)
    assert isinstance(built, FitData) and len(built.arguments["x"]) == 24
    assert built.arguments["shuffle"] and built.arguments["batch_size"] == 8
    assert len(arrays().whole(("own-dataset",))) == 8


@pytest.mark.parametrize(("shuffle", "effect"), [(True, "other order"), (False, "identical")])
def test_a_dataset_of_the_arrays_serves_the_same_samples(shuffle, effect):
    data = arrays(shuffle=shuffle)
    [remedy] = data.remedies
    assert remedy.effect == effect == data.compared(("own-dataset",)).effect
    assert (".shuffle(64)" in remedy.code) is shuffle
    assert data.whole(("own-dataset",)).options().autotune.enabled is False


@pytest.mark.parametrize(
    ("given", "batch_size", "written"),
    [("batch_size=SIZE", 8, ".batch(SIZE)"), ("batch_size=8", 8, ".batch(8)"), ("batch_size=SIZE", None, ".batch(32)")],
)
def test_the_edit_cuts_arrays_as_the_call_does(given, batch_size, written, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(f"import tensorflow as tf\nmodel.fit(X, Y, {given})\n")
    place = Place(file=str(path), line=2, end_line=2, end_column=len(f"model.fit(X, Y, {given})"))
    [remedy] = given_to_fit(
        {"x": IMAGES, "y": LABELS, "batch_size": batch_size}, ["edges"], place=place, room=ROOM
    ).remedies
    assert f"from_tensor_slices((X, Y)).shuffle(64){written}.prefetch(2)" in reads_as(remedy.edits)


def test_numbers_of_other_types_are_those_that_keras_makes_of_them():
    data = arrays(x=IMAGES.astype(np.float64))
    built = data.whole(("own-dataset",))
    assert next(iter(built))[0].dtype == tf.float32
    assert data.compared(("own-dataset",)).effect == "other order"


def test_the_last_arrays_are_left_to_validation():
    data = given_to_fit({"x": IMAGES, "y": LABELS, "validation_split": 0.25}, ["edges"], room=ROOM)
    assert data.epoch_images == 48


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": IMAGES, "y": LABELS[:3]}, "the arrays have several lengths"),
        ({"x": IMAGES, "y": LABELS, "steps_per_epoch": 3}, "the arrays are fed with `steps_per_epoch`"),
        ({"x": iter([])}, "data of type list_iterator can be read only once"),
    ],
)
def test_what_cannot_be_built_again_is_refused(arguments, message):
    with pytest.raises(Failed, match=message):
        given_to_fit(arguments, ["edges"], room=ROOM)


@pytest.mark.parametrize(("data", "epochs"), [([IMAGES[:8]], 1), (FitData(arguments={"x": IMAGES}), 5)])
def test_a_window_over_data_that_fit_reads_through_a_generator_has_one_epoch(data, epochs):
    asked = []
    windows = SimpleNamespace(train=lambda data, **given: asked.append(given["epochs"]), steps_of=lambda data: 1)
    measure_with(windows)(data, 5, "train", 0, 60.0)
    assert asked == [epochs]


class Toy(Change):
    """A change of a test, which is offered to any data that lose time at the edges of epochs."""

    names = ("toy",)
    serves = ("edges",)

    def __init__(self, build, conflicts=()):
        self.build, self.conflicts = build, conflicts

    def find(self, data):
        remedy = Remedy(name="toy", text="a toy", code="toy()", effect="identical")
        yield Offer(remedy=remedy, build=self.build, conflicts=frozenset(self.conflicts))


def test_a_change_of_a_dataset_that_is_appended_is_found_built_compared_and_combined():
    class Kept(Batches):
        """The same batches, from a list."""

        def __init__(self, dataset):
            super().__init__()
            self.kept = [dataset[index] for index in range(len(dataset))]

        def __getitem__(self, index):
            return self.kept[index]

    def build(plan):
        plan.dataset = Kept(plan.dataset)

    def of(*needs):
        toy = Toy(build, conflicts=("processes",))
        return py_data(dataset, needs=needs, changes=(*PY_DATASET_REMEDIES, toy))

    dataset = Batches()
    data = of("waiting", "edges")
    assert [remedy.name for remedy in data.remedies] == ["workers", "more-workers", "processes", "toy"]
    made = len(dataset.made)
    both = data.built(("toy", "workers"), 3)
    assert len(dataset.made) == made + 8
    assert (both.workers, len(both)) == (2, 3)
    assert [labels[0] for _, labels in (both[index] for index in range(3))] == [0, 8, 16]
    assert len(dataset.made) == made + 8
    assert data.compared(("toy",)).effect == data.compared(("workers", "toy")).effect == "identical"
    assert data.fits(("toy", "workers")) and not data.fits(("processes", "toy"))
    assert "toy" not in [remedy.name for remedy in of("waiting").remedies]


def test_a_change_of_arrays_that_is_appended_is_found_built_compared_and_combined():
    def build(plan):
        plan.arrays = tuple(array.copy() for array in plan.arrays)

    data = arrays(changes=(*ARRAY_REMEDIES, Toy(build)), shuffle=False)
    assert [remedy.name for remedy in data.remedies] == ["own-dataset", "toy"]
    built = data.built(("toy",), 3)
    assert isinstance(built, FitData) and len(built.arguments["x"]) == 24 and built.arguments["x"].base is None
    assert len(data.built(("own-dataset", "toy"), 3)) == 3
    assert data.compared(("toy",)).effect == data.compared(("own-dataset", "toy")).effect == "identical"
    assert data.fits(("own-dataset", "toy"))


def test_remedies_that_set_the_number_of_workers_are_not_combined():
    names = [name for change in PY_DATASET_REMEDIES for name in change.names]
    for data in (py_data(Batches()), py_data(Batches(workers=4, use_multiprocessing=True))):
        offered = [remedy.name for remedy in data.remedies]
        assert set(offered) <= set(names)
        assert not any(data.fits((one, other)) for one in offered for other in offered if one != other)
