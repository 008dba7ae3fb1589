"""The rate of whatever feeds a model, and what of it has no noise."""

from __future__ import annotations

import itertools
from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf

from unstall.pipeline import VARIANTS, build, from_folder
from unstall.profiles.gate import anchors
from unstall.profiles.gate.feed import Feed
from unstall.profiles.gate.inspection import inspect
from unstall.profiles.gate.verdicts import EPOCH, STEADY
from unstall.profiles.measure.batches import FitData
from unstall.profiles.measure.schedule import epochs_for
from unstall.profiles.stages import python_stages

BATCH = (np.zeros((5, 4, 4, 3), np.float32), np.zeros((5,), np.float32))


@pytest.fixture(autouse=True)
def short_windows(monkeypatch):
    """Makes windows short: what is asserted of a rate is that there is one."""
    monkeypatch.setattr("unstall.profiles.gate.fit_windows.epochs_for", partial(epochs_for, window_s=0.05))
    monkeypatch.setattr("unstall.profiles.gate.loop_windows.TRAIN_WINDOW_S", 0.05)
    monkeypatch.setattr(anchors, "WINDOW_S", 0.05)
    monkeypatch.setattr(python_stages, "ROUND_S", 0.2)


class Batches(keras.utils.PyDataset):
    """Three batches of five images, made by `workers` threads."""

    def __init__(self, workers=1):
        super().__init__(workers=workers)

    @property
    def num_batches(self):
        return 3

    def __getitem__(self, index):
        return BATCH


def a_dataset(batches=3):
    return tf.data.Dataset.from_tensors(BATCH).repeat(batches)


def a_generator():
    for _ in range(3):
        yield BATCH


@pytest.mark.parametrize(
    "feed",
    [a_dataset(), a_dataset, Batches(), Batches, a_generator, [BATCH] * 3, lambda: [BATCH] * 3],
    ids=["dataset", "function: dataset", "PyDataset", "class", "function: generator", "list", "function: list"],
)
def test_all_images_of_whatever_gives_batches_are_counted(feed):
    opened = Feed(feed)
    assert opened.images_served == 15
    rates = opened.rates()
    assert list(rates) == ["steady", "epoch"]
    assert min(rates.values()) > 0


def test_what_is_read_once_an_epoch_is_read_for_a_window():
    epochs = 0

    def batches():
        nonlocal epochs
        epochs += 1
        yield from [BATCH] * 3

    opened = Feed(batches)
    opened.opened._epochs, before = 5, epochs
    opened.rates()
    assert epochs - before == 5


def test_batches_without_an_end_end_with_an_error():
    with pytest.raises(ValueError, match="An epoch must end within 0 s. Received: [0-9]+ batches and no end."):
        Feed(lambda: itertools.repeat(BATCH), limit_s=0.05)


def test_a_function_that_counts_its_images_is_called_for_a_window(monkeypatch):
    now_ns = 0
    monkeypatch.setattr("unstall.profiles.clock.now_ns", lambda: now_ns)

    def work():
        nonlocal now_ns
        now_ns += 100_000_000
        return 7

    opened = Feed(work)
    assert opened.images_served == 7
    assert opened.rates() == {"epoch": pytest.approx(70.0)}


def test_a_model_is_trained_where_there_is_one():
    model = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    opened = Feed(a_dataset(), model=model)
    before = int(model.optimizer.iterations)
    assert min(opened.rates().values()) > 0
    assert int(model.optimizer.iterations) > before


@pytest.mark.parametrize(
    ("feed", "match"),
    [
        (lambda: 0, "A feed must go through at least 1 image. Received: 0"),
        (lambda: -3, "A feed must go through at least 1 image. Received: -3"),
        (lambda: None, "must return batches, or how many images it went through. Received: None"),
        (lambda: True, "must return batches, or how many images it went through. Received: True"),
        (3, "A feed must be batches, or a function. Received: int"),
        (tf.data.Dataset.from_tensors(BATCH).repeat(), "repeats for ever"),
        (list, "The data must give at least one batch in every epoch"),
        (a_dataset().take(0), "The data must give at least one batch in every epoch"),
    ],
)
def test_a_feed_that_feeds_nothing_is_refused(feed, match):
    with pytest.raises(ValueError, match=match):
        Feed(feed)


def test_a_function_that_stops_counting_is_refused():
    counts = iter([5, 5, *[0] * 10_000_000])
    opened = Feed(lambda: next(counts))
    opened._calls = 3
    with pytest.raises(ValueError, match="A feed must go through at least 1 image. Received: 0"):
        opened.rates()


def test_a_count_cannot_train_a_model():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    with pytest.raises(ValueError, match="A model can only be trained on batches"):
        Feed(lambda: 5, model=model)


def test_each_anchor_is_a_rate():
    assert anchors.decode() > 0
    assert anchors.copy() > 0
    assert anchors.Resident()() > 0


def test_the_anchors_photo_is_the_same_each_time_and_costs_what_photos_cost():
    photo = anchors.anchor_photo()
    anchors.anchor_photo.cache_clear()
    assert np.array_equal(photo, anchors.anchor_photo())
    assert 20_000 < len(photo) < 26_000


def decoded_twice(path, label):
    photo = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    again = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(photo, (8, 8)) + tf.image.resize(again, (8, 8)), label


def test_decodes_stages_and_bytes_of_a_tf_data_pipeline_are_counted(photos):
    paths = sorted(str(path) for path in photos.glob("*/*.jpg"))
    files = tf.data.Dataset.from_tensor_slices((paths, [0] * len(paths)))
    seen = inspect(Feed(files.map(decoded_twice, num_parallel_calls=2).batch(8).prefetch(1)))
    assert seen.images == 40
    assert seen.decodes_per_image == 2.0
    assert seen.stages == ("from_tensor_slices", "map decoded_twice, 2 calls", "batch", "prefetch, buffer of 1")
    assert seen.batch == "float32 (8, 8, 8, 3), int32 (8)"
    assert seen.bytes_per_image == 8 * 8 * 3 * 4 + 4


@pytest.mark.long
@pytest.mark.parametrize(
    ("variant", "decodes", "workers"),
    [
        ("tf-data-composed", 1.0, None),  # in Python
        ("tf-data-scaled-decode", 1.0, None),  # in one of four branches
        ("tf-data-cache", 0.0, None),
        ("py-dataset", 1.0, 4),
        ("generator", 1.0, 1),  # by Pillow
    ],
)
def test_our_own_loaders_decode_each_image_once_or_not_at_all(photos, variant, decodes, workers):
    with build(VARIANTS[variant], from_folder(photos)) as loader:
        seen = inspect(Feed(loader.data, parallel_batches=loader.parallel_batches))
        again = inspect(Feed(loader.data, parallel_batches=loader.parallel_batches))
    assert (seen.images, seen.decodes_per_image, seen.workers) == (40, decodes, workers)
    assert again == seen


def test_a_frozen_draw_is_seen():
    flipped = tf.data.Dataset.range(32).map(lambda one: tf.random.uniform((4, 4, 3))).cache().batch(8)
    (frozen,) = inspect(Feed(flipped)).random_before_cache
    assert "random_uniform" in frozen


def test_what_cannot_be_taken_apart_still_has_its_images():
    seen = inspect(Feed([BATCH] * 3))
    assert (seen.images, seen.stages, seen.decodes_per_image) == (15, (), None)


class Slow(Batches):
    """Holds each batch until two are in the making, or for a while."""

    def __init__(self, workers):
        super().__init__(workers=workers)
        import threading

        self.barrier = threading.Barrier(2)

    @property
    def num_batches(self):
        return 8

    def __getitem__(self, index):
        import threading

        try:
            self.barrier.wait(0.05)
        except threading.BrokenBarrierError:
            self.barrier.reset()
        return BATCH


def test_workers_that_work_side_by_side_are_told_from_one():
    assert inspect(Feed(Slow(4))).several_at_work is True
    assert inspect(Feed(Batches(1))).several_at_work is None


def test_what_fit_gets_repeated_is_measured_in_the_place_of_the_feed():
    images = np.zeros((40, 8, 8, 3), np.float32)
    data = tf.data.Dataset.from_tensor_slices((images, np.zeros(40, np.int32))).batch(16)
    repeated = FitData(arguments={"x": data.repeat(), "steps_per_epoch": 3})
    feed = Feed(data, repeated=repeated)
    assert feed.data is data  # the invariants are read from it
    assert feed.images_served == 40
    assert set(feed.rates()) == {STEADY, EPOCH}


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        (a_generator(), "which can be read once"),
        (a_dataset().repeat(), "must be finite"),
    ],
    ids=["a generator", "a dataset without an end"],
)
def test_a_feed_that_cannot_be_read_again_is_refused_before_it_is_read(feed, message):
    with pytest.raises(ValueError, match=message):
        Feed(feed)
