"""How far the workers of a PyDataset work ahead of the model."""

from __future__ import annotations

import keras
import pytest

from tests.planted import SleepyDataset, a_batch
from unstall.profiles.data import adapter
from unstall.profiles.measure.ahead import Ahead


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
