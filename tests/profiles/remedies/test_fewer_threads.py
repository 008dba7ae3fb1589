"""Fewer threads of PyTorch's own, where workers need the cores: only where the modules still give the same."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from unstall.profiles.data import Use, adapter
from unstall.profiles.remedies.room import Room

pytestmark = pytest.mark.needs("torch")

ROOM = Room(calls=2, memory_bytes=1e9, disk_bytes=1e9)


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    import torch

    now = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(now)


def opened(work: Any, workers: int = 1, only: tuple[str, ...] = (), *, on_gpu: bool = False) -> Any:
    from torch.utils.data import DataLoader

    loader = DataLoader(range(8), batch_size=2, num_workers=workers)  # type: ignore[arg-type]
    return adapter(loader).rebuilt(loader, Use(work=work, on_gpu=on_gpu), ["waiting"], room=ROOM, only=only)


def differing(by: float | None) -> Any:
    return SimpleNamespace(difference_on=lambda threads: by)


def found(data: Any) -> Any:
    return next((remedy for remedy in data.remedies if remedy.name == "fewer-threads"), None)


def test_the_steps_leave_a_core_for_each_worker() -> None:
    assert "steps on 1 of PyTorch's 3 threads" in found(opened(differing(0.0))).text
    assert found(opened(differing(0.0))).code == "torch.set_num_threads(1)"
    assert found(opened(differing(0.0), workers=0)) is None
    assert found(opened(differing(0.0), on_gpu=True)) is None
    assert found(opened(None)) is None  # nothing is known of the steps


def test_a_difference_is_told_and_a_larger_one_refused() -> None:
    assert "differ by up to 3e-07 of the largest" in found(opened(differing(3e-7))).text
    for by, told in (
        (0.01, "differ by 0.01 of the largest"),
        (float("nan"), "differ by nan"),
        (None, "could not be compared"),
    ):
        data = opened(differing(by))
        assert found(data) is None
        assert [told in one.reason for one in data.untried if one.name == "fewer-threads"] == [True]


def test_each_epoch_runs_on_the_threads_of_its_contender() -> None:
    import torch

    data = opened(differing(0.0))
    ours, fewer = (data.built(names, 2) for names in ((), ("fewer-threads",)))
    seen = []
    for loader in (fewer, ours, fewer):
        seen.append({torch.get_num_threads() for _ in loader})
    assert seen == [{1}, {3}, {1}] and torch.get_num_threads() == 3  # batches in memory are trained on as written


def test_a_script_with_the_remedy_computes_on_so_many() -> None:
    import torch

    opened(None, only=("fewer-threads",)).whole(("fewer-threads",))
    assert torch.get_num_threads() == 1


def test_outputs_are_compared_from_the_same_states_and_all_is_put_back() -> None:
    import torch

    from unstall.profiles.script.loop_step import StepNotes

    class ByThreads(torch.nn.Module):
        def forward(self, inputs: Any) -> Any:
            return inputs * torch.get_num_threads()

    def noted(*modules: Any) -> Any:
        notes = StepNotes()
        value = torch.rand(4, 6)
        for module in modules:
            value = module(value)
        return notes.close()

    layers = (torch.nn.Linear(6, 3), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3))
    work = noted(*layers)
    before = layers[2].running_mean.clone()
    state = torch.get_rng_state()
    assert work.difference_on(1) < 1e-6
    assert torch.equal(layers[2].running_mean, before) and torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == 3
    assert noted(ByThreads()).difference_on(1) == pytest.approx(2 / 3)
