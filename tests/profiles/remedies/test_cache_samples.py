"""Samples kept in memory: only where they stay the same, shared by workers, and written into the script as measured."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.checks import run_python
from unstall.profiles.data import Use, adapter
from unstall.profiles.remedies.edits import edited
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.torch import cache_samples
from unstall.profiles.stages.places import note_places

pytestmark = pytest.mark.needs("torch")

ROOM = Room(calls=2, memory_bytes=1e9, disk_bytes=1e9)


class Rows:
    """Rows that are made with some work."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.own = np.random.default_rng(0)

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return np.full((2, 3), index, np.float32), index, index / 2


class ByTorch(Rows):
    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.rand(3)


class ByNumPy(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.random.rand(3)


class ByPython(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.zeros(3) + (random.random() < 0.01)  # in few samples, but the generator moves


class ByItsOwn(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.zeros(3) + (self.own.random() < 1e-9)


class Unseen(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.random.default_rng().random(3)


class Counts(Rows):
    calls = 0

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        return np.zeros(3)


class Epochs(Rows):
    def set_epoch(self, epoch: int) -> None: ...


class Shapes(Rows):
    def __getitem__(self, index: int) -> Any:
        return np.zeros(index + 1)


class Texts(Rows):
    def __getitem__(self, index: int) -> Any:
        return "text"


@pytest.fixture(autouse=True)
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_samples, "_LEAST_NS", 0)


def opened(dataset: Any, room: Room = ROOM, **settings: Any) -> Any:
    from torch.utils.data import DataLoader

    loader = DataLoader(dataset, **({"batch_size": 8, "shuffle": True} | settings))
    return adapter(loader).rebuilt(loader, Use(), ["waiting"], room=room)


def why_not(dataset: Any, **settings: Any) -> str:
    data = opened(dataset, **settings)
    assert "cache-samples" not in [remedy.name for remedy in data.remedies]
    [reason] = [one.reason for one in data.untried if one.name == "cache-samples"]
    return str(reason)


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (ByTorch(), "making a sample draws random numbers"),
        (ByNumPy(), "making a sample draws random numbers"),
        (ByPython(), "making a sample draws random numbers"),
        (ByItsOwn(), "making a sample draws random numbers"),
        (Unseen(), "samples differ when they are made again"),
        (Counts(), "making a sample changes `calls` of the data set"),
        (Epochs(), "the data set has `set_epoch`"),
        (Shapes(), "its samples differ in shape or type"),
        (Texts(), "its samples are of type str"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Rows) else "",
)
def test_samples_that_may_change_are_not_kept(dataset: Any, why: str) -> None:
    assert why in why_not(dataset)


def test_random_states_are_as_they_were_when_samples_were_looked_at() -> None:
    import torch

    def states() -> Any:
        return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()

    before = states()
    opened(ByTorch())
    opened(Rows())
    assert states() == before


def test_a_cache_has_to_fit_in_memory_and_with_workers_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "more than 0 MB of memory" in why_not(Rows(), room=Room(calls=2, memory_bytes=100, disk_bytes=0))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100))
    assert "shared memory (/dev/shm) that workers may take" in why_not(Rows(), num_workers=2)
    alone = opened(Rows())
    assert not alone.fits(("cache-samples", "workers"))
    assert "shared=False" in str(alone.remedies) or not alone.remedies[0].edits


def test_each_sample_is_made_once_by_all_workers_together_and_is_what_it_was(tmp_path: Path) -> None:
    class Noted(Rows):
        def __getitem__(self, index: int) -> Any:
            with (tmp_path / "made").open("a") as file:
                file.write("x")
            return super().__getitem__(index)

    data = opened(Noted(), num_workers=2)
    (tmp_path / "made").unlink()
    kept = data.built(("cache-samples",), float("inf"))
    epochs = [list(kept) for _ in range(3)]
    assert len((tmp_path / "made").read_text()) == 1 + 40  # the first one tells their shape
    for batches in epochs:
        rows, numbers, halves = zip(*batches, strict=True)
        assert sorted(int(number) for part in numbers for number in part) == list(range(40))
        for part, some in zip(rows, numbers, strict=True):
            assert (part == some[:, None, None]).all()
        assert {part.dtype for part in rows} == {part.dtype for part in [next(iter(data.built((), 1)))[0]]}
        assert {str(part.dtype) for part in halves} == {"torch.float64"}


def test_the_batches_are_those_of_the_script_and_a_part_of_an_epoch_has_the_same_samples_again() -> None:
    data = opened(Rows())
    assert data.compared(("cache-samples",)).effect == "identical"
    [remedy] = [remedy for remedy in data.remedies if remedy.name == "cache-samples"]
    assert remedy.warms_up and remedy.memory_bytes == 40 * (24 + 8 + 8)
    part = data.built(("cache-samples",), 2)
    first, second = ([sorted(batch[1].tolist()) for batch in part] for _ in range(2))
    assert first == second and len(first) == 2


SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return {"rows": torch.ones(3) * index, "number": index}


def main():
    torch.manual_seed(5)
    loader = DataLoader(Rows(), batch_size=8, shuffle=True, num_workers=WORKERS)
    for epoch in range(3):
        for batch in loader:
            print(batch["rows"].tolist(), batch["number"], batch["rows"].dtype)
    return loader


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_script_with_the_edit_prints_the_same_batches(workers: int, tmp_path: Path) -> None:
    import torch
    from torch.utils.data import DataLoader

    script, new = tmp_path / "train.py", tmp_path / "edited.py"
    script.write_text(SCRIPT.replace("WORKERS", str(workers)))
    end_notes = note_places(DataLoader)
    try:
        names: dict[str, Any] = {"__name__": "train"}
        with torch.random.fork_rng():
            exec(compile(script.read_text(), str(script), "exec"), names)
            loader = names["main"]()
    finally:
        end_notes()
    data = adapter(loader).rebuilt(loader, Use(), ["waiting"], room=ROOM)
    [remedy] = [remedy for remedy in data.remedies if remedy.name == "cache-samples"]
    new.write_text(edited(script.read_text(), remedy.edits))
    assert len(remedy.edits[0].text.splitlines()) <= 30 and "unstall" not in new.read_text()
    before, after = run_python(tmp_path, script.name), run_python(tmp_path, new.name)
    assert after.returncode == 0, after.stderr
    assert after.stdout == before.stdout and len(before.stdout.splitlines()) == 9
