"""Which steps of an epoch are steady, by how far the loader works ahead."""

from __future__ import annotations

import keras
import pytest

from tests.planted import SleepyDataset, a_batch
from unstall.profiles.data import adapter
from unstall.profiles.measure.ahead import Ahead, ramp_of


@pytest.mark.parametrize(
    ("parallel", "batches", "ramp_steps"),
    [(1, 1, 1), (1, 24, 1), (4, 12, 4), (4, 14, 6), (4, 8, 4), (16, 48, 16), (16, 32, 16)],
)
def test_steady_steps_are_a_multiple_of_the_batches_that_are_made_at_once(
    parallel: int, batches: int, ramp_steps: int
) -> None:
    assert ramp_of(Ahead(parallel_batches=parallel), batches) == (ramp_steps, ())


@pytest.mark.parametrize("batches", [7, 16, 24, 31])
def test_an_epoch_without_a_steady_part_is_said_to_have_none(batches: int) -> None:
    ramp_steps, (doubt,) = ramp_of(Ahead(parallel_batches=16), batches)
    assert ramp_steps == 0
    said = f"short: the loader makes up to 16 batches at the same time, and an epoch has {batches}:"
    assert str(doubt).startswith(said)


@pytest.mark.parametrize(("shuffled", "held"), [(5, 5), (12, 12), (1000, 24)])
def test_a_shuffle_that_holds_much_of_an_epoch_leaves_no_steady_part(shuffled: int, held: int) -> None:
    ramp_steps, (doubt,) = ramp_of(Ahead(shuffled_batches=shuffled), 24)
    assert ramp_steps == 0
    assert str(doubt).startswith(f"buffered: a shuffle holds up to {held} of an epoch's 24 batches, ")
    assert ramp_of(Ahead(shuffled_batches=4), 24) == (1, ())


@pytest.mark.parametrize(
    ("options", "parallel", "buffered"),
    [
        ({"workers": 1}, 1, 0),
        ({"workers": 4}, 4, 10),
        ({"workers": 4, "max_queue_size": 3}, 4, 3),
        ({"workers": 1, "use_multiprocessing": True, "max_queue_size": 5}, 1, 5),
    ],
)
def test_a_py_dataset_works_ahead_by_its_workers_and_its_queue(options: dict, parallel: int, buffered: int) -> None:
    class Data(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 1

    data = Data(**options)
    assert adapter(data).ahead(data) == Ahead(parallel_batches=parallel, buffered_batches=buffered)


@pytest.mark.parametrize("data", [[a_batch()], lambda: iter([a_batch()])])
def test_lists_and_functions_work_ahead_by_nothing_that_can_be_seen(data: object) -> None:
    assert adapter(data).ahead(data) == Ahead()
    one_by_one = SleepyDataset(1)
    assert adapter(one_by_one).ahead(one_by_one) == Ahead()
