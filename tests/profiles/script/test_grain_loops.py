"""Loops of a script's own over Grain's data: what was planted is found, and iterators stay what they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.planted import planted
from unstall.profiles.data.kinds import DataKind
from unstall.profiles.script.loops import Loops

pytestmark = pytest.mark.needs("grain")


@pytest.fixture
def loops() -> Iterator[Loops]:
    from unstall.profiles.data.grain import GrainData

    loops = Loops(max_steps=None)
    restore = GrainData().attach(loops)
    yield loops
    restore()


def slow(number: int) -> Any:
    time.sleep(0.005)
    return np.full((2,), number, np.float32)


@planted
def test_waiting_of_a_loop_over_a_map_dataset_is_found(loops: Loops) -> None:
    """4 elements of 5 ms and a step of 20 ms: half of the time is loading."""
    import grain

    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    data = grain.MapDataset.range(48).map(slow).to_iter_dataset(options).batch(4)
    for _ in range(3):
        for batch in data:
            assert batch.shape == (4, 2)
            time.sleep(0.02)
    [fit] = loops.fits
    assert fit.facts.data == "a Grain dataset" and fit.facts.kind is DataKind.GRAIN and len(fit.epochs) == 3
    waits, steady = (sum(getattr(epoch, name) for epoch in fit.epochs) for name in ("steady_wait_ns", "steady_ns"))
    assert waits / steady == pytest.approx(0.5, abs=0.04)


def test_iterators_keep_their_type_and_state_and_one_pass_is_one_row(loops: Loops) -> None:
    import grain

    data = grain.MapDataset.range(12).to_iter_dataset().batch(2)
    iterator = iter(data)
    assert isinstance(iterator, grain.DatasetIterator)
    first = next(iterator)
    state = iterator.get_state()
    rest = [batch.tolist() for batch in iterator]
    iterator.set_state(state)
    assert first.tolist() == [0, 1] and [batch.tolist() for batch in iterator] == rest
    assert len(loops.fits) == 1


def test_data_that_are_there_together_are_two_loops(loops: Loops) -> None:
    import grain

    train, valid = (grain.MapDataset.range(length).to_iter_dataset().batch(2) for length in (12, 8))
    for data in (train, valid, train, valid):
        for _ in data:
            pass
    assert [[epoch.steps for epoch in fit.epochs] for fit in loops.fits] == [[6, 6], [4, 4]]


def test_a_data_loader_is_watched(loops: Loops) -> None:
    import grain

    source = grain.MapDataset.range(6)
    sampler = grain.samplers.IndexSampler(
        num_records=6, num_epochs=1, shard_options=grain.sharding.NoSharding(), shuffle=False
    )
    loader = grain.DataLoader(data_source=source, sampler=sampler, worker_count=0)
    assert [int(value) for value in loader] == list(range(6))
    [fit] = loops.fits
    assert fit.facts.data == "a Grain DataLoader" and fit.facts.kind is DataKind.GRAIN and fit.epochs[0].steps == 6


def test_classes_are_as_before_once_it_is_over() -> None:
    import grain

    from unstall.profiles.data.grain import GrainData

    before = grain.MapDataset.__iter__
    loops = Loops(max_steps=None)
    GrainData().attach(loops)()
    assert grain.MapDataset.__iter__ is before
    assert len(list(grain.MapDataset.range(3))) == 3 and loops.fits == []
