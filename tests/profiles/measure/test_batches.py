"""What is said of batches: how many images, which come first, and what is refused."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.planted import SleepyDataset, a_batch, a_model, measure, tensorflow_only
from unstall.profiles.measure.batches import batch_images, first_batches, is_fit_data, weighed


@pytest.mark.parametrize(
    ("batch", "images"),
    [
        (a_batch(7), 7),
        (list(a_batch(7)), 7),
        (a_batch(7)[0], 7),
        (({"left": np.zeros((4, 2)), "right": np.zeros((4, 3))}, np.zeros(4)), 4),
        (([np.zeros((4, 2)), np.zeros((4, 3))], np.zeros(4)), 4),
    ],
    ids=["pair", "list", "images", "dict", "two inputs"],
)
def test_images_of_a_batch_are_counted(batch: Any, images: int) -> None:
    assert batch_images(batch) == images


@pytest.mark.parametrize(
    "data",
    [[], SleepyDataset(1, steps=0), tf.data.Dataset.from_tensors(a_batch()).take(0), lambda: iter(())],
    ids=["list", "PyDataset", "tf.data", "callable"],
)
def test_data_without_a_batch_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="has no batch"):
        first_batches(data)


def test_a_dataset_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be finite.*drop .repeat\(\)"):
        first_batches(tf.data.Dataset.from_tensors(a_batch()).repeat())


def test_a_py_dataset_without_end_is_refused() -> None:
    class Endless(keras.utils.PyDataset):
        num_batches = None

        def __getitem__(self, index: int) -> Any:
            return a_batch()

    with pytest.raises(ValueError, match="finite"):
        first_batches(Endless())


def test_a_generator_that_can_be_read_only_once_is_refused() -> None:
    once = (a_batch() for _ in range(10))
    with pytest.raises((TypeError, ValueError), match=r"again|once|re-iterable"):
        measure(once, a_model(), device="emulated:10000", rounds=1)


@pytest.mark.parametrize(("batch", "received"), [("cat", "str"), ((None, None), "nothing"), ((), "nothing")])
def test_a_batch_without_arrays_is_refused(batch: Any, received: str) -> None:
    with pytest.raises(ValueError, match=rf"A batch must hold arrays: .* Received: {received}\."):
        first_batches([batch])


@tensorflow_only
@pytest.mark.parametrize(
    "labels", [np.array([0, 2, 1]), np.array([[0.0], [2.0], [1.0]]), np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0]])]
)
def test_class_weights_are_found_in_any_labels(labels: np.ndarray) -> None:
    images = np.zeros((3, 2, 2, 3))
    weights = weighed((images, labels), {1: 3.0, 2: 5.0})[2]
    assert weights.tolist() == [1, 5, 3]
    assert weights.tolist() == make_weights(labels, {1: 3.0, 2: 5.0}).tolist()


@pytest.mark.parametrize(
    ("batch", "received"),
    [
        ((*a_batch(), np.ones(10)), "a tuple of 3"),
        ((a_batch()[0], {"cat": np.ones(10)}), "a tuple of 2"),
        (a_batch()[0], "a ndarray of 10"),
    ],
)
def test_class_weights_for_anything_but_labels_are_refused(batch: Any, received: str) -> None:
    with pytest.raises(ValueError, match=rf"`class_weight` needs batches of .* Received: {received}\."):
        weighed(batch, {1: 3.0})


def make_weights(labels: np.ndarray, class_weight: dict[int, float]) -> np.ndarray:
    """Returns the weights that Keras hands to a train step."""
    model = a_model()
    seen = []

    def train_function(iterator: Any) -> Any:
        seen.append(next(iterator)[2].numpy())
        return {}

    model.train_function = train_function
    data = tf.data.Dataset.from_tensors((np.zeros((3, 2, 2, 3)), labels))
    model.fit(data, class_weight=class_weight, verbose=0)
    return seen[0]


def test_the_first_batches_end_with_the_data() -> None:
    assert [batch_images(batch) for batch in first_batches(SleepyDataset(1, steps=4, last_images=3))] == [10, 10, 10, 3]


@pytest.mark.parametrize(("limit_batches", "kept"), [(0, 1), (1, 1), (2.5, 3), (100, 6)])
def test_the_first_batches_weigh_no_more_than_they_may(limit_batches: float, kept: int) -> None:
    weight = sum(part.nbytes for part in a_batch())
    assert len(first_batches([a_batch()] * 6, limit_bytes=int(limit_batches * weight))) == kept


@pytest.mark.parametrize(
    ("data", "fits"),
    [
        (SleepyDataset(1), True),
        (tf.data.Dataset.from_tensors(a_batch()), True),
        ([a_batch()], False),
        (lambda: iter([a_batch()]), False),
    ],
    ids=["PyDataset", "tf.data", "list", "callable"],
)
def test_fit_can_iterate_again_what_it_knows(data: Any, fits: bool) -> None:
    assert is_fit_data(data) is fits
