"""Loops of a script's own over a PyDataset or an old generator: passes are told apart, what was planted is found."""

from __future__ import annotations

import pickle
import time
import types
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
from keras.src.legacy.preprocessing.image import ImageDataGenerator

from tests.planted import planted
from unstall.profiles.data import DataKind
from unstall.profiles.data.keras import PyDatasets
from unstall.profiles.script.loops import Loops


@pytest.fixture
def loops() -> Iterator[Loops]:
    loops = Loops(max_steps=None)
    restore = PyDatasets().attach(loops)
    yield loops
    restore()


def batches_of(length: int = 6, wait_s: float = 0.0) -> Any:
    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return length

        def __getitem__(self, index: int) -> Any:
            if index >= length:  # ends `for batch in data` with a Keras whose PyDataset has no `__iter__`
                raise IndexError(index)
            time.sleep(wait_s)
            return np.zeros((4, 2), np.float32), np.zeros(4, np.float32)

    return Batches()


@planted
def test_waiting_of_a_loop_over_indices_is_found(loops: Loops) -> None:
    """20 ms of loading and 10 ms of a step: two thirds of the time."""
    data = batches_of(12, wait_s=0.02)
    for _ in range(3):
        for index in range(len(data)):
            data[index]
            time.sleep(0.01)
    [fit] = loops.fits
    assert fit.facts.data == "a PyDataset (Batches)" and fit.facts.kind is DataKind.PY_DATASET and fit.facts.loop
    assert [epoch.steps for epoch in fit.epochs] == [11, 11]  # nobody has said that the third pass ended
    loops.pause()
    [fit] = loops.fits
    waits, steady = (sum(getattr(epoch, name) for epoch in fit.epochs) for name in ("steady_wait_ns", "steady_ns"))
    assert waits / steady == pytest.approx(2 / 3, abs=0.03)


def test_a_pass_ends_with_all_batches_in_any_order_and_with_an_index_that_comes_again(loops: Loops) -> None:
    data = batches_of()
    for order in ([3, 1, 0, 2, 5, 4], [0, 1, 2], [0, 1, 2, 3]):
        for index in order:
            data[index]
    loops.pause()
    [fit] = loops.fits
    assert [epoch.steps for epoch in fit.epochs] == [5, 2, 3]


def test_data_that_are_there_together_are_two_loops_and_data_made_anew_are_one(loops: Loops) -> None:
    train = batches_of(6)
    for _ in range(3):
        for data in (train, type(train)()):
            for index in range(5):
                data[index]
        del data
    loops.pause()
    assert [[epoch.steps for epoch in fit.epochs] for fit in loops.fits] == [[4] * 3] * 2


def test_an_old_generator_is_drawn_from_for_as_long_as_it_has_batches(loops: Loops) -> None:
    generator = ImageDataGenerator().flow(np.zeros((12, 4, 4, 3)), batch_size=4)
    for number, _ in enumerate(generator):
        if number == 8:
            break
    loops.pause()
    [fit] = loops.fits
    assert (fit.facts.data, fit.facts.kind) == ("an ImageDataGenerator iterator", DataKind.IMAGE_ITERATOR)
    assert [epoch.steps for epoch in fit.epochs] == [2, 2, 2]


def test_what_keras_draws_and_what_a_batch_draws_itself_is_no_loop_of_the_scripts(loops: Loops) -> None:
    inner = batches_of()

    class Outer(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return inner[index]

    outer = Outer()
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(outer, epochs=2, verbose=0)
    assert loops.fits == []
    for index in range(4):
        outer[index]
    loops.pause()
    assert [fit.facts.data for fit in loops.fits] == ["a PyDataset (Outer)"]


def test_classes_are_as_before_once_it_is_over() -> None:
    loops = Loops(max_steps=None)
    before = keras.utils.PyDataset.__init_subclass__
    restore = PyDatasets().attach(loops)
    data = batches_of()
    restore()
    for index in range(6):
        data[index]
    assert loops.fits == [] and keras.utils.PyDataset.__init_subclass__ == before


@pytest.mark.needs("cloudpickle")
def test_data_of_a_class_that_is_pickled_by_value_reach_a_worker_unwatched(loops: Loops) -> None:
    import cloudpickle

    data = pickle.loads(cloudpickle.dumps(batches_of()))
    assert data[0][0].shape == (4, 2) and len(data) == 6
    assert not loops.fits and isinstance(vars(type(data))["__getitem__"], types.FunctionType)


@pytest.mark.parametrize("own", [False, True])
def test_a_loop_that_draws_batches_without_an_index_is_seen(own: bool, loops: Loops) -> None:
    data = batches_of()
    if own:

        class Own(type(data)):  # type: ignore[misc]
            def __iter__(self) -> Iterator[Any]:
                return (self[index] for index in range(6))

        data = Own()
    for _ in range(2):
        assert [batch[0].shape for batch in data] == [(4, 2)] * 6
    loops.pause()
    [fit] = loops.fits
    assert [epoch.steps for epoch in fit.epochs] == [6, 6]
