"""One adapter answers for each kind of data, and a further library is one further adapter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from unstall.profiles import data as module
from unstall.profiles.data import ADAPTERS, Adapter, DataKind, adapter
from unstall.profiles.gate.feed import Feed
from unstall.profiles.measure import by_hand, first_batches


class Rows(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> np.ndarray:
        return np.full((4, 2), index, np.float32)


DATA: dict[str, tuple[Any, DataKind, str]] = {
    "a dataset": (tf.data.Dataset.range(3), DataKind.TF_DATA, "a tf.data.Dataset"),
    "a PyDataset": (Rows(), DataKind.PY_DATASET, "a PyDataset (Rows)"),
    "an array": (np.zeros(3), DataKind.ARRAYS, "NumPy arrays"),
    "arrays by name": ({"x": np.zeros(3)}, DataKind.ARRAYS, "dict of arrays"),
    "a generator": ((number for number in range(3)), DataKind.GENERATOR, "a generator"),
    "an iterator": (iter([1]), DataKind.OTHER, "an iterator of type list_iterator"),
    "a function": (print, DataKind.OTHER, "data of type builtin_function_or_method"),
    "nothing": (None, DataKind.OTHER, "data of type NoneType"),
}


@pytest.mark.parametrize(("data", "kind", "label"), DATA.values(), ids=DATA)
def test_data_have_a_kind_and_a_label(data: Any, kind: DataKind, label: str) -> None:
    assert (adapter(data).kind(data), adapter(data).label(data)) == (kind, label)


@pytest.mark.parametrize("data", [one for one, *_ in DATA.values()], ids=DATA)
def test_one_adapter_answers_for_data_beside_the_last(data: Any) -> None:
    assert sum(one.owns(data) for one in ADAPTERS) in (1, 2) and ADAPTERS[-1].owns(data)


@pytest.mark.needs("torch")
def test_a_data_loader_has_workers() -> None:
    from torch.utils.data import DataLoader

    data = DataLoader(np.zeros((4, 2)), num_workers=3)
    assert adapter(data).kind(data) is DataKind.DATA_LOADER
    assert (adapter(data).label(data), adapter(data).workers(data)) == ("a DataLoader (3 workers)", 3)


class Tape:
    """Data of a toy library: three batches, which it has another name for."""

    def played(self) -> Iterator[np.ndarray]:
        for number in range(3):
            yield np.full((4, 2), number, np.float32)


class Tapes(Adapter):
    """The adapter of that library."""

    def owns(self, data: Any) -> bool:
        return isinstance(data, Tape)

    def kind(self, data: Any) -> DataKind:
        return DataKind.OTHER

    def label(self, data: Any) -> str:
        return "a tape"

    def by_hand(self, data: Any) -> Iterator[Any]:
        return ((batch,) for batch in data.played())

    def check_read_again(self, data: Any) -> None:
        pass


def test_a_further_library_is_one_further_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ADAPTERS", (Tapes(), *ADAPTERS))
    assert adapter(Tape()).label(Tape()) == "a tape"
    assert [batch[0].mean() for batch in by_hand(Tape())] == [0, 1, 2]
    assert len(first_batches(Tape())) == 3
    with pytest.raises(ValueError, match="A feed must be batches"):
        Feed(Tape())
