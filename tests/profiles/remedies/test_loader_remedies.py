"""Remedies for a DataLoader: made anew with the same arguments, equal batches, a loop with a stand-in for its steps."""

from __future__ import annotations

import os
import time
from functools import partial

import numpy as np
import pytest

from tests.planted import planted
from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.data import Failed
from unstall.profiles.remedies.remedy import Remedy
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.torch import REMEDIES, cache_samples
from unstall.profiles.trial.surrogate import computing, measure_loop, sleeping

pytestmark = pytest.mark.needs("torch")


@pytest.fixture(scope="module")
def torch():
    import torch

    return torch


@pytest.fixture(autouse=True)
def no_samples_are_kept(monkeypatch):
    monkeypatch.setattr(cache_samples, "_LEAST_IN_BATCHES_NS", 10**12)


ROOM = Room(calls=2, memory_bytes=1e9, disk_bytes=1e9)


class Numbers:
    """A data set of numbers; with `draws` of other numbers each time, with `wait_s` slowly."""

    def __init__(self, length=40, wait_s=0.0, draws=False):
        self.length, self.wait_s, self.draws = length, wait_s, draws

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.wait_s:
            time.sleep(self.wait_s)
        drawn = np.random.default_rng().random() if self.draws else 0.0
        return np.full((3,), index + drawn, np.float32), index % 2


def loader_of(dataset=None, **settings):
    from torch.utils.data import DataLoader

    return DataLoader(dataset or Numbers(), **({"batch_size": 4, "shuffle": True} | settings))


def data_of(loader, needs=("waiting", "edges"), pins=False, changes=REMEDIES):
    from unstall.profiles.remedies.torch.loader_data import LoaderData

    return LoaderData(loader, changes=changes, needs=needs, room=ROOM, images_per_batch=4, pins=pins)


def names(data):
    return [remedy.name for remedy in data.remedies]


def seen(loader):
    return sorted(int(value) for numbers, _ in loader for value in numbers[:, 0])


def test_workers_are_offered_and_serve_the_same_batches(torch):
    data = data_of(loader_of())
    assert names(data) == ["workers", "more-workers", "half-workers"]
    for name in names(data):
        assert data.compared((name,)).effect == "identical"
    built = data.built(("more-workers",), 3)
    assert (built.num_workers, built.persistent_workers, len(built)) == (4, True, 3)
    assert seen(data.whole(("workers",))) == list(range(40))
    assert data.remedies[0].code == "DataLoader(..., num_workers=2, persistent_workers=True)"


def test_the_loader_as_written_keeps_its_arguments(torch):
    def collate(samples):
        return torch.tensor([label for _, label in samples]), 7

    again = data_of(loader_of(collate_fn=collate, drop_last=True, batch_size=7)).built((), 99)
    assert again.collate_fn is collate and len(again) == 5
    assert again.num_workers == 0 and not again.persistent_workers
    assert all(seven == 7 for _, seven in again)


def test_batches_that_may_come_in_any_order_still_may(torch):
    if not hasattr(loader_of(), "in_order"):
        pytest.skip("this PyTorch has no in_order")
    data = data_of(loader_of(num_workers=2, in_order=False))
    assert not data.built(("more-ready",), 3).in_order
    assert data.compared(("more-ready",)).effect == "identical"  # in the order of the sampler


def test_workers_that_are_there_may_stay_and_prepare_more(torch):
    data = data_of(loader_of(num_workers=2))
    assert names(data) == ["more-workers", "half-workers", "no-workers", "persistent", "more-ready"]
    assert data.built(("persistent", "more-ready"), 5).prefetch_factor == 4
    assert names(data_of(loader_of(num_workers=2), needs=("edges",))) == ["half-workers", "no-workers", "persistent"]
    assert "pin" in names(data_of(loader_of(), pins=True))


def test_more_workers_than_cores_may_be_too_many(torch):
    data = data_of(loader_of(num_workers=6), needs=("edges",))
    assert names(data) == ["fewer-workers", "half-workers", "no-workers", "persistent"]
    built = data.built(("fewer-workers",), 3)
    assert (built.num_workers, built.persistent_workers) == (2, True)
    assert data.edges_by == "workers that start anew" and all(remedy.ends_edges for remedy in data.remedies)
    assert data_of(loader_of(num_workers=6, persistent_workers=True)).edges_by is None
    assert not data.fits(("workers", "fewer-workers")) and data.fits(("fewer-workers", "more-ready"))


def test_draws_are_not_compared_and_that_is_noted(torch):
    data = data_of(loader_of(Numbers(draws=True)))
    assert data.compared(("workers",)).effect == "identical"
    assert any(note.startswith("The data differ from one reading") for note in data.notes)


def test_the_random_state_of_the_script_stays(torch):
    own = torch.Generator().manual_seed(5)
    before = torch.get_rng_state(), own.get_state()
    data = data_of(loader_of(generator=own))
    data.compared(("workers",))
    assert torch.equal(before[0], torch.get_rng_state()) and torch.equal(before[1], own.get_state())


def test_no_gpu_is_seeded(torch, monkeypatch):
    ours = os.getpid()

    def manual_seed(seed):
        assert os.getpid() != ours, "this seeds all GPUs as well"  # PyTorch seeds its workers so

    monkeypatch.setattr(torch, "manual_seed", manual_seed)
    data = data_of(loader_of())
    data.compared(("workers",))
    assert data.remedies[0].effect == "identical"


def test_workers_promise_as_much_as_there_are_more_of_them(torch):
    data = data_of(loader_of(num_workers=1))
    assert [data.most_gain(names) for names in ((), ("workers",), ("more-workers",))] == [1, 2, 4]
    assert data_of(loader_of()).most_gain(("workers",)) == 2


def test_an_iterable_dataset_gets_no_workers_and_the_reason_is_said(torch):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(8))

        def __len__(self):
            return 8

    data = data_of(loader_of(Stream(), shuffle=None))
    assert names(data) == []
    assert data.untried[0].reason.startswith("each worker would read the whole IterableDataset")


def test_a_loader_without_a_length_is_refused(torch):
    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(8))

    with pytest.raises(Failed, match="the loader has no length"):
        data_of(loader_of(Endless(), shuffle=None))


@planted
def test_a_loop_with_a_stand_in_takes_as_long_as_its_parts(torch):
    """4 images of 5 ms, then a step of 10 ms that sleeps: 30 ms a batch, two thirds of it waiting."""
    measure = partial(measure_loop, sleeping(0.010))
    loader = loader_of(Numbers(40, wait_s=0.005))
    sample = measure(loader, 2, "train", 3, 60.0)
    assert (sample.epoch_images, sample.epochs, sample.round) == (80, 2, 3)
    assert sample.s_per_image * 4 == pytest.approx(0.030, rel=0.1)
    assert sample.wait_ns / sample.wall_ns == pytest.approx(2 / 3, rel=0.1)
    with pytest.raises(Failed, match="an epoch takes longer than 0 s"):
        measure(loader, 1, "train", 3, 0.0)


def test_batches_that_wait_ready_at_the_end_of_an_epoch_are_in_its_time_and_not_in_its_rate(torch):
    """2 workers hold 4 batches ready: of 24, the first two and the last four are not steady."""
    sample = measure_loop(lambda: None, loader_of(Numbers(96), num_workers=2), 1, "train", 0, 60.0)
    assert (sample.images, sample.epoch_images) == (18 * 4, 24 * 4)
    short = measure_loop(lambda: None, loader_of(Numbers(20), num_workers=2), 1, "train", 0, 60.0)
    assert (short.images, short.epoch_images) == (2 * 4, 20)  # a turn of both workers is left
    shorter = measure_loop(lambda: None, loader_of(Numbers(12), num_workers=2), 1, "train", 0, 60.0)
    assert shorter.images == shorter.epoch_images == 12  # no two turns: all steps count


@planted
def test_the_stand_in_computes_as_long_as_it_was_asked_for(torch):
    from unstall.profiles.remedies.torch.loader_data import computing_on

    step = computing(0.02, computing_on(2))
    began = time.perf_counter()
    for _ in range(10):
        step()
    assert (time.perf_counter() - began) / 10 == pytest.approx(0.02, rel=0.25)


class Augmented(Numbers):
    """Draws from PyTorch's random numbers, as torchvision's transforms do."""

    def __getitem__(self, index):
        import torch

        return torch.rand(3), torch.tensor(float(index))


def test_workers_draw_other_numbers_where_the_data_set_draws(torch):
    data = data_of(loader_of(Augmented(40)))
    effects = {remedy.name: remedy.effect for remedy in data.remedies}
    assert effects == dict.fromkeys(("workers", "more-workers", "half-workers"), "other draws")
    assert data.compared(("workers",)).effect == "other draws"
    data = data_of(loader_of(Augmented(40), num_workers=2))
    effects = {remedy.name: remedy.effect for remedy in data.remedies}
    assert effects["more-workers"] == "other draws" and effects["persistent"] == "identical"
    state = torch.get_rng_state()
    assert {remedy.effect for remedy in data_of(loader_of(Numbers(40))).remedies} == {"identical"}
    assert torch.equal(torch.get_rng_state(), state)


def test_workers_of_a_loader_that_is_made_anew_do_not_stay(torch):
    from unstall.profiles.remedies.torch.loader_data import LoaderData

    def of(workers, needs=("waiting", "edges")):
        loader = loader_of(num_workers=workers)
        return LoaderData(loader, changes=REMEDIES, needs=needs, room=ROOM, images_per_batch=4, anew=True)

    assert (
        names(of(2)) == ["more-workers", "half-workers", "no-workers", "more-ready"]
        and of(2).untried[0].name == "persistent"
    )
    assert names(of(2, needs=("waiting",))) == ["more-workers", "half-workers", "no-workers", "more-ready"]
    assert of(0).remedies[0].code == "DataLoader(..., num_workers=2)"
    assert not any(remedy.ends_edges for remedy in of(0).remedies)


class Kept(Change):
    """A change of a test: the samples kept in memory, which is in conflict with `workers`."""

    names = ("kept",)
    serves = ("waiting",)

    def find(self, data):
        if not data.is_iterable:
            remedy = Remedy(name="kept", text="samples in memory", code="list(dataset)", effect="identical")
            yield Offer(remedy=remedy, build=self.build, conflicts=frozenset({"workers"}))

    def build(self, plan):
        plan.dataset = [plan.dataset[index] for index in range(len(plan.dataset))]


def test_a_change_that_is_appended_is_found_built_compared_and_combined(torch):
    data = data_of(loader_of(), changes=(*REMEDIES, Kept()))
    assert names(data) == ["workers", "more-workers", "half-workers", "kept"]
    both = data.built(("more-workers", "kept"), 3)
    assert (type(both.dataset), both.num_workers, len(both)) == (list, 4, 3)
    assert isinstance(data.built((), 3).dataset, Numbers)
    assert seen(data.whole(("kept",))) == list(range(40))
    assert data.compared(("kept",)).effect == "identical"
    assert data.fits(("kept", "more-workers")) and not data.fits(("workers", "kept"))
    assert names(data_of(loader_of(), needs=("edges",), changes=(*REMEDIES, Kept()))) == []


def test_data_are_fetched_in_whole_batches_where_a_change_says_so(torch):
    """A data set that takes the indices of a batch: what `batch_sampler` gives, one by one."""

    class Rows:
        def __init__(self, dataset):
            self.dataset = dataset

        def __getitem__(self, indices):
            return np.stack([self.dataset[index][0] for index in indices]), [
                self.dataset[index][1] for index in indices
            ]

    class Fetched(Kept):
        def build(self, plan):
            plan.dataset, plan.sampler, plan.batch_sampler = Rows(plan.dataset), plan.batch_sampler, None
            plan.settings["collate_fn"] = torch.utils.data.default_convert

    data = data_of(loader_of(), changes=(Fetched(),))
    built = data.built(("kept",), 3)
    assert len(built) == 3 and [tuple(numbers.shape) for numbers, _ in built] == [(4, 3)] * 3
    assert seen(data.whole(("kept",))) == list(range(40))


def test_conflicts_name_remedies_that_there_are():
    offered = {name for change in REMEDIES for name in change.names}
    data = data_of(loader_of(num_workers=6), pins=True)
    pairs = [(one, other) for one in offered for other in offered if one != other]
    apart = {frozenset(pair) for pair in pairs if not data.fits(pair)}
    numbers = {"workers", "half-workers", "more-workers", "fewer-workers", "no-workers"}
    assert apart == {
        *(frozenset(pair) for pair in pairs if numbers.issuperset(pair) and set(pair) != {"workers", "more-workers"}),
        *(frozenset({"no-workers", other}) for other in ("persistent", "more-ready")),
    }


def test_without_workers_nothing_that_belongs_to_them_is_left(torch):
    data = data_of(loader_of(num_workers=3, persistent_workers=True, prefetch_factor=5))
    assert "no-workers" in names(data) and "no-workers" not in names(data_of(loader_of()))
    built = data.built(("no-workers",), 3)
    assert (built.num_workers, built.persistent_workers, built.prefetch_factor) == (0, False, None)
    assert data.ahead(("no-workers",)) == 0
    assert not data.fits(("no-workers", "workers")) and not data.fits(("more-ready", "no-workers"))
