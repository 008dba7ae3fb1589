"""Batches of arrays: every example once an epoch, in an order that the seed and the epoch decide."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.builders import fed
from unstall.pipeline.draws import epoch_order
from unstall.pipeline.sources.published import DatasetError
from unstall.pipeline.stages.array_batches import array_batches

COUNT = 23
FEATURES = np.arange(COUNT * 3, dtype=np.float32).reshape(COUNT, 3)
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 9, 3), np.uint8)
LABELS = np.arange(COUNT)


def epoch(dataset) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(x, y) for x, y in dataset.as_numpy_iterator()]


def order(dataset) -> list[int]:
    return np.concatenate([y for _, y in epoch(dataset)]).tolist()


def test_every_example_comes_once_with_its_label_and_the_last_batch_is_short():
    dataset = array_batches(FEATURES, LABELS, batch_size=10)
    batches = epoch(dataset)
    assert [len(x) for x, _ in batches] == [10, 10, 3] and dataset.cardinality() == 3
    assert sorted(np.concatenate([y for _, y in batches])) == list(range(COUNT))
    for x, y in batches:
        np.testing.assert_array_equal(x, FEATURES[y])
    assert dataset.element_spec[1].dtype == tf.int32


def test_an_epochs_order_is_that_of_the_seed_and_the_epoch():
    dataset = array_batches(FEATURES, LABELS, batch_size=4, seed=5)
    for number in range(3):
        assert order(dataset) == epoch_order(COUNT, seed=5, epoch=number).tolist()
    assert order(array_batches(FEATURES, LABELS, batch_size=7, seed=5)) == epoch_order(COUNT, seed=5, epoch=0).tolist()
    assert order(array_batches(FEATURES, LABELS, batch_size=4, seed=6)) != epoch_order(COUNT, seed=5, epoch=0).tolist()


def test_tests_come_in_order():
    dataset = array_batches(FEATURES, LABELS, batch_size=4, training=False)
    assert order(dataset) == order(dataset) == list(range(COUNT))


@pytest.mark.parametrize("batch_size", [None, COUNT, 1000])
def test_a_full_batch_holds_everything(batch_size):
    dataset = array_batches(FEATURES, LABELS, batch_size=batch_size)
    assert dataset.cardinality() == 1
    ((x, y),) = epoch(dataset)
    np.testing.assert_array_equal(x, FEATURES[y])
    assert len(y) == COUNT


@pytest.mark.parametrize("examples", [FEATURES, FEATURES.astype(np.int32), IMAGES], ids=["float", "int", "bytes"])
def test_examples_keep_their_type_unless_asked(examples):
    dataset = array_batches(examples, LABELS, batch_size=5, training=False)
    assert dataset.element_spec[0].dtype == examples.dtype
    np.testing.assert_array_equal(np.concatenate([x for x, _ in epoch(dataset)]), examples)


def test_bytes_are_scaled_on_request():
    dataset = array_batches(IMAGES, LABELS, batch_size=5, training=False, scale=True)
    images = np.concatenate([x for x, _ in epoch(dataset)])
    assert images.dtype == np.float32 and images.max() == 1
    np.testing.assert_array_equal(images, IMAGES.astype(np.float32) / np.float32(255))


def test_a_crop_of_one_pixel_keeps_its_static_shape():
    dataset = array_batches(IMAGES, LABELS, batch_size=5, crop=(1, 3))
    assert dataset.element_spec[0].shape.as_list() == [None, 1, 3, 3]


def test_tests_are_cropped_from_the_middle():
    dataset = array_batches(IMAGES, LABELS, batch_size=5, training=False, crop=(4, 3))
    np.testing.assert_array_equal(np.concatenate([x for x, _ in epoch(dataset)]), IMAGES[:, 2:6, 3:6])


def test_training_is_cropped_at_random_anew_each_epoch():
    dataset = array_batches(IMAGES, LABELS, batch_size=5, crop=(4, 3), seed=3)
    again = array_batches(IMAGES, LABELS, batch_size=9, crop=(4, 3), seed=3)
    corners = []
    for _ in range(2):
        found = {}
        for x, y in epoch(dataset):
            for crop, label in zip(x, y, strict=True):
                places = [
                    (row, column)
                    for row in range(5)
                    for column in range(7)
                    if np.array_equal(IMAGES[label, row : row + 4, column : column + 3], crop)
                ]
                assert len(places) == 1
                found[int(label)] = places[0]
        corners.append(found)
        for x, y in epoch(again):
            for crop, label in zip(x, y, strict=True):
                row, column = found[int(label)]
                np.testing.assert_array_equal(crop, IMAGES[label, row : row + 4, column : column + 3])
    assert len(corners[0]) == COUNT and corners[0] != corners[1]
    assert {row for row, _ in corners[0].values()} | {row for row, _ in corners[1].values()} == set(range(5))


def test_fit_is_fed_every_example_in_every_epoch():
    dataset = array_batches(FEATURES, LABELS, batch_size=6)
    for batches in fed(dataset, epochs=2):
        assert sorted(np.concatenate([y for _, y in batches])) == list(range(COUNT))


def test_batches_are_cut_as_keras_cuts_them():
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

    theirs = ArrayDataAdapter(FEATURES, LABELS, batch_size=6, shuffle=False).get_tf_dataset()
    ours = array_batches(FEATURES, LABELS, batch_size=6, training=False)
    for (x, y), (their_x, their_y) in zip(epoch(ours), epoch(theirs), strict=True):
        np.testing.assert_array_equal(x, their_x)
        np.testing.assert_array_equal(y, their_y)
    # tf.data's own rewrites are off in both; Keras sets it below its prefetch, which hands it up.
    assert not ours.options().experimental_optimization.apply_default_optimizations
    assert not theirs.options().experimental_optimization.apply_default_optimizations


def test_training_on_them_is_training_on_the_arrays():
    def trained(*arguments, **keywords) -> np.ndarray:
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(optimizer=keras.optimizers.SGD(1e-5), loss="mse")
        model.fit(*arguments, epochs=3, verbose=0, **keywords)
        return model.get_weights()[0]

    ours = trained(array_batches(FEATURES, LABELS, batch_size=6, training=False))
    np.testing.assert_allclose(ours, trained(FEATURES, LABELS, batch_size=6, shuffle=False), rtol=1e-6)


@pytest.mark.parametrize(
    ("examples", "labels", "keywords", "message"),
    [
        (FEATURES, LABELS[:5], {}, "as many `labels` as `examples`, at least 1. Received: 23 examples and 5 labels."),
        (FEATURES[:0], LABELS[:0], {}, "Received: 0 examples and 0 labels."),
        (FEATURES, LABELS, {"batch_size": 0}, "`batch_size` must be at least 1. Received: batch_size=0."),
        (FEATURES, LABELS, {"scale": True}, "`scale` is for bytes, which it divides by 255. Received: float32."),
        (
            IMAGES,
            LABELS,
            {"crop": (9, 9)},
            r"`crop` must fit into the images. Received: crop=\(9, 9\), images of \(8, 9",
        ),
        (IMAGES, LABELS, {"crop": (0, 9)}, r"Received: crop=\(0, 9\)"),
        (FEATURES, LABELS, {"crop": (1, 1)}, r"Received: crop=\(1, 1\), images of \(3,\)"),
    ],
)
def test_what_cannot_be_batched_is_refused(examples, labels, keywords, message):
    with pytest.raises(DatasetError, match=message):
        array_batches(examples, labels, **{"batch_size": 4, **keywords})
