"""What is said of batches: how many images, which come first, and what is refused."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from profiles.measure.batches import batch_images, first_batches, is_fit_data
from profiles.measure.measure import measure
from tests.planted import IMAGES, SleepyDataset, a_batch, a_model


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


@pytest.mark.parametrize(
    ("batch", "received"),
    [(a_batch()[0], "ndarray"), ("cat", "str"), ((*a_batch(), np.ones(IMAGES)), "3"), (a_batch()[:1], "1")],
    ids=["images", "text", "triple", "single"],
)
def test_a_batch_that_is_no_pair_is_refused(batch: Any, received: str) -> None:
    with pytest.raises(ValueError, match=rf"must be \(images, labels\). Received: .*{received}"):
        first_batches([batch])


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
