"""Whole batches by one index operation: for which data sets, with the same batches, and written into the script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checks import run_python
from tests.profiles.remedies.scripts import loader_of
from unstall.profiles.data import Use, adapter
from unstall.profiles.remedies.edits import edited

pytestmark = pytest.mark.needs("torch")

ROWS = np.arange(60, dtype=np.float32).reshape(20, 3)
LABELS = np.arange(20)


class Rows:
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: Any) -> Any:
        return {"rows": ROWS[index], "labels": LABELS[index]}


class Draws(Rows):
    def __getitem__(self, index: Any) -> Any:
        return ROWS[index] + np.random.default_rng().random()


class OneByOne(Rows):
    def __getitem__(self, index: Any) -> Any:
        return ROWS[index], float(LABELS[index])


class Texts(Rows):
    def __getitem__(self, index: Any) -> Any:
        return str(index)


class Pairs(Rows):
    def __getitem__(self, index: Any) -> Any:
        return ROWS[index][:2]


def tensors() -> Any:
    import torch
    from torch.utils.data import TensorDataset

    return TensorDataset(torch.from_numpy(ROWS), torch.from_numpy(LABELS))


def opened(dataset: Any, **settings: Any) -> Any:
    from torch.utils.data import DataLoader

    loader = DataLoader(dataset, **({"batch_size": 8, "shuffle": True} | settings))
    return adapter(loader).rebuilt(loader, Use(), ["waiting"])


def offered(dataset: Any, **settings: Any) -> bool:
    return "whole-batches" in [remedy.name for remedy in opened(dataset, **settings).remedies]


def test_it_is_offered_where_a_list_of_indices_gives_what_is_collated() -> None:
    from torch.utils.data import Subset

    assert offered(tensors()) and offered(Rows()) and offered(Subset(tensors(), [3, 1, 2]))
    assert offered(tensors(), drop_last=True, shuffle=False, num_workers=1)


@pytest.mark.parametrize("dataset", [Draws(), OneByOne(), Texts(), Pairs()])
def test_it_is_not_offered_where_a_list_gives_anything_else(dataset: Any) -> None:
    assert not offered(dataset)


def test_it_is_not_offered_where_the_script_collates_itself_or_reads_whole_batches() -> None:
    from torch.utils.data import default_collate

    assert not offered(tensors(), collate_fn=lambda samples: default_collate(samples))
    assert not offered(tensors(), batch_size=None, shuffle=False)


@pytest.mark.parametrize("dataset", [Rows(), tensors], ids=["arrays", "tensors"])
@pytest.mark.parametrize("settings", [{}, {"shuffle": False}, {"drop_last": True}, {"num_workers": 2}])
def test_the_batches_are_the_same_for_a_seed(dataset: Any, settings: dict[str, Any]) -> None:
    import torch

    data = opened(dataset() if callable(dataset) else dataset, **settings)
    assert data.compared(("whole-batches",)).effect == "identical"
    read = []
    for names in ((), ("whole-batches",)):
        torch.manual_seed(3)
        batches = list(data.whole(names))
        parts = [[*batch.values()] if isinstance(batch, dict) else [*batch] for batch in batches]
        read.append([[part.numpy() for part in some] for some in parts])
    written, whole = read
    assert len(written) == len(whole) == (2 if settings.get("drop_last") else 3)
    for one, other in zip(written, whole, strict=True):
        for before, after in zip(one, other, strict=True):
            np.testing.assert_array_equal(before, after)
            assert before.dtype == after.dtype


CALLS = {
    "positions": "DataLoader(data, 8, True)",
    "names": "DataLoader(dataset=data, batch_size=size, shuffle=shuffled, drop_last=True)",
    "in order": "DataLoader(data, batch_size=size)",
    "a generator": "DataLoader(data, batch_size=size, shuffle=True, generator=seeded)",
    "a sampler": "DataLoader(data, batch_size=size, sampler=SequentialSampler(data))",
    "a sampler of batches": "DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), size, False))",
}
SCRIPT = """
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

torch.manual_seed(5)
size, shuffled, seeded = 8, True, torch.Generator().manual_seed(7)
data = TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))
loader = {call}
for epoch in range(2):
    for rows, numbers in loader:
        print(rows.tolist(), numbers.tolist(), rows.dtype, numbers.dtype)
"""


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_script_with_the_edit_prints_the_same_batches(call: str, tmp_path: Path) -> None:
    script, new = tmp_path / "train.py", tmp_path / "edited.py"
    script.write_text(SCRIPT.format(call=call))
    loader = loader_of(script, silent=True)
    data = adapter(loader).rebuilt(loader, Use(), ["waiting"])
    [remedy] = [remedy for remedy in data.remedies if remedy.name == "whole-batches"]
    new.write_text(edited(script.read_text(), remedy.edits))
    assert "batch_size=None" in new.read_text() or "(data, None, " in new.read_text()
    before, after = run_python(tmp_path, script.name), run_python(tmp_path, new.name)
    assert after.returncode == 0, after.stderr
    assert after.stdout == before.stdout and len(before.stdout.splitlines()) in (4, 6)
