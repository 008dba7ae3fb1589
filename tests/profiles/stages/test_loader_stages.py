"""The stages of a `DataLoader`: planted costs of its dataset, its `collate_fn` and its workers."""

from __future__ import annotations

import sys
import time
from types import ModuleType
from typing import Any

import pytest

from tests.planted import planted

pytestmark = pytest.mark.needs("torch")


class Slow:
    """Sleeps in a known library call for 3 ms, and outside of one for 1 ms."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> Any:
        import cv2
        import torch

        time.sleep(0.001)
        cv2.imread("file")
        return torch.zeros(3)


def collate(samples: list[Any]) -> Any:
    import torch

    time.sleep(0.002 * len(samples))
    return torch.stack(samples)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("cv2")
    module.imread = lambda file: time.sleep(0.003)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cv2", module)


@planted
@pytest.mark.parametrize("workers", [0, 2])
def test_dataset_collate_and_the_rest_are_told_apart(
    workers: int, library: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from torch.utils.data import DataLoader

    from unstall.profiles.stages import loader_stages
    from unstall.profiles.stages.loader_stages import loader_table

    monkeypatch.setattr(loader_stages, "_ROUNDS", 2)
    monkeypatch.setattr(loader_stages, "_ROUND_S", 0.3)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    loader = DataLoader(Slow(), batch_size=8, shuffle=True, num_workers=workers, collate_fn=collate)
    table = loader_table(loader, cores=2.0)
    assert table.reason is None and table.workers == workers
    waits = {stage.name: stage.wait_us_per_image for stage in table.stages}
    assert waits["cv2.imread"] == pytest.approx(3000, rel=0.15)
    assert waits["collate_fn"] == pytest.approx(2000, rel=0.15)
    assert waits["Slow.__getitem__"] == pytest.approx(1000, rel=0.3)
    [item] = [stage for stage in table.stages if stage.name == "Slow.__getitem__"]
    assert item.location == f"test_loader_stages.py:{Slow.__getitem__.__code__.co_firstlineno}" and item.python
    assert table.workers_seen == max(1, workers)
    assert (table.workers_start_s is None) == (not workers) and (table.workers_start_s or 0.0) < 5
    assert table.lines[0].location.startswith("test_loader_stages.py:") and table.decoded_pixels is None
    assert ("sending batches between processes" in str(table.rest)) == bool(workers)
    assert torch.equal(torch.get_rng_state(), state)


def test_batches_that_may_come_in_any_order_may_where_stages_are_measured() -> None:
    from torch.utils.data import DataLoader

    from unstall.profiles.stages.loader_stages import _Batches, _loader_of

    if not hasattr(DataLoader([0]), "in_order"):
        pytest.skip("this PyTorch has no in_order")
    loader = DataLoader(Slow(), batch_size=8, num_workers=2, in_order=False)
    assert not _loader_of(_Batches(loader, None, [[0, 1]]), loader).in_order


def test_kinds_of_data_sets(library: None) -> None:
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    from unstall.profiles.stages.loader_stages import loader_table

    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Any:
            while True:
                yield 0

    class Whole:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Any:
            return torch.zeros(5, 2)

    class Many(Slow):
        def __getitems__(self, indices: list[int]) -> Any:
            return [torch.zeros(3) for _ in indices]

    assert "an IterableDataset is read once" in str(loader_table(DataLoader(Endless()), cores=2.0).reason)
    whole = loader_table(DataLoader(Whole(), batch_size=None), cores=2.0)
    assert whole.reason is None and whole.stages
    many = loader_table(DataLoader(Many(), batch_size=4), cores=2.0)
    assert "cv2.imread" not in {stage.name for stage in many.stages}
