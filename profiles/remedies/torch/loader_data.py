"""A `DataLoader` of PyTorch's, built again with remedies; and what computes with PyTorch as a step would."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.utils.data import IterableDataset, default_collate, default_convert

from unstall.profiles.data.base import StepWork
from unstall.profiles.data.torch import ready_batches
from unstall.profiles.random_states import Generators
from unstall.profiles.remedies.change import Change
from unstall.profiles.remedies.data import WHOLE, Data, Failed
from unstall.profiles.remedies.edits import calls, may_pass_more, passed, reads_attribute
from unstall.profiles.remedies.equality import compare
from unstall.profiles.remedies.offers import Offers
from unstall.profiles.remedies.reading_twice import copied
from unstall.profiles.remedies.remedy import Need
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.torch.loader_plan import LoaderPlan, loader_from, plan_of
from unstall.profiles.stages.places import data_sets_at, place_of

# Batches that are compared.
_COMPARED_BATCHES = 4
# Arguments of a DataLoader whose code decides how a remedy is written.
_ARGUMENTS = (
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "drop_last",
    "generator",
    "persistent_workers",
    "prefetch_factor",
)
# Samples that are made with two seeds, to see whether they draw.
_COMPARED_SAMPLES = 8
# Samples of which a batch is made both ways, to see whether the data set takes several indices at once.
_TRIED_SAMPLES = 16
# The side of the matrices whose product is a unit of the stand-in's computing: about half a millisecond.
_SIDE = 256


class LoaderData(Data):
    """A DataLoader.

    Args:
      loader: of the script.
      changes: that may be offered, such as `REMEDIES`.
      needs: what it loses, the most first, which calls for remedies.
      room: what the remedies may take; a worker for each call at once.
      images_per_batch: of a full batch; None where that is not known.
      pins: whether the loop trains on a GPU, so that pinned memory may help.
      anew: whether the script recreates the loader for each epoch, so that no workers can stay.
      unkept: why nothing of one epoch may be kept for the next; None where it may.
      work: what a step of the script runs; None where that is not known.
      only: the remedies that are looked for; all unless given.

    Attributes:
      loader, needs, pins, anew, unkept, work, only: as given.
      room: as given.
      calls: how many workers the cores can take, at least 1.
      place: where the script made the loader; None where that is not known.

    Raises:
      Failed: if the loader has no length.
    """

    def __init__(
        self,
        loader: Any,
        *,
        changes: Sequence[Change[LoaderData, LoaderPlan]],
        needs: Collection[Need],
        room: Room,
        images_per_batch: int | None,
        pins: bool = False,
        anew: bool = False,
        unkept: str | None = None,
        work: StepWork | None = None,
        only: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.loader, self.needs, self.pins, self.anew = loader, frozenset(needs), pins, anew
        self.unkept, self.work, self.only, self._threads = unkept, work, only, torch.get_num_threads()
        self.room, self.calls = room, max(1, room.calls)
        place = place_of(loader)
        # A loader that a library makes has no call of its own in the script's code. But a library may stand between the
        # script's call and the class, as Lightning does while it calls `train_dataloader`.
        is_plain = type(loader) is torch.utils.data.DataLoader
        its_own = place is not None and (not place.called or (is_plain and calls(place, "DataLoader")))
        self.place = place if its_own else None
        try:
            self._number = len(loader)
        except TypeError as error:
            raise Failed("the loader has no length") from error
        starts_anew = bool(loader.num_workers) and not loader.persistent_workers
        self.edges_by = "workers that start anew" if starts_anew else None
        self.epoch_batches = float(self._number)
        self.epoch_images = None if images_per_batch is None else float(self._number * images_per_batch)
        self._offers = Offers(changes, self, needs, only=only)
        self.remedies, self.untried = self._offers.remedies, self._offers.untried

    @property
    def is_iterable(self) -> bool:
        """Whether the data set gives its samples one after the other, and takes no indices."""
        return isinstance(self.loader.dataset, IterableDataset)

    @property
    def takes_indices(self) -> bool:
        """Whether PyTorch asks the data set for one sample at a time, by its index, and collates them to batches."""
        has_length = hasattr(self.loader.dataset, "__len__")
        return not self.is_iterable and self.loader.batch_sampler is not None and self._number > 0 and has_length

    @cached_property
    def other_data_sets(self) -> list[Any] | None:
        """What else the script's call of `DataLoader` was given; None where that is not known."""
        given = data_sets_at(self.loader)
        return None if given is None else [one for one in given if one is not self.loader.dataset]

    @cached_property
    def wraps_dataset(self) -> bool:
        """Whether an edit may put another data set around those of the script's call of `DataLoader`.

        Not where the file reads more of a loader's data set than its length.
        """
        return self.place is not None and not reads_attribute(self.place, "dataset", likely="load")

    @cached_property
    def passed(self) -> dict[str, bool]:
        """Which arguments the script's call of `DataLoader` may pass, and whether it passes a variable."""
        if self.place is None:
            return {}
        return (dict.fromkeys(_ARGUMENTS, True) if may_pass_more(self.place) else {}) | passed(self.place, _ARGUMENTS)

    def states_put_back(self) -> contextlib.AbstractContextManager[None]:
        """Puts back all random states when the block ends: the global ones, and what the loader and its data hold.

        Inside, seed `torch.default_generator`: `torch.manual_seed` would seed the GPU as well.
        """
        return Generators(self.loader).put_back()

    @cached_property
    def draws(self) -> bool:
        """Whether samples depend on PyTorch's random numbers, as most augmentation does."""
        if self.is_iterable or not self._number:
            return False
        try:
            with self.states_put_back():
                sampler = self.loader.sampler if self.loader.batch_sampler is None else self.loader.batch_sampler
                first = next(iter(sampler))
                indices = first[:_COMPARED_SAMPLES] if isinstance(first, (list, tuple)) else [first]
                readings = []
                dataset = copied(self.loader.dataset)
                for seed in (1, 1, 2):
                    torch.default_generator.manual_seed(seed)
                    readings.append([_as_numpy(dataset[index]) for index in indices])
            again, drawn = (compare(readings[0], reading).effect for reading in readings[1:])
            return again == "identical" and drawn != "identical"
        except Exception:  # code of the user's, which shows its error where the loader is read
            return False

    @cached_property
    def gives_batches(self) -> bool:
        """Whether a list of indices gives what PyTorch collates of the samples, for a batch and for one sample."""
        dataset = copied(self.loader.dataset)
        if self.loader.collate_fn is not default_collate or self.draws:
            return False
        try:
            with self.states_put_back():
                indices = [int(index) for index in next(iter(self.loader.batch_sampler))[:_TRIED_SAMPLES]]
                for some in (indices, indices[:1]):
                    collated = default_collate([dataset[index] for index in some])
                    read = default_convert(dataset[some])
                    if _parts(collated) != _parts(read) or compare([collated], [read]).effect != "identical":
                        return False
        except Exception:  # code of the user's that takes one index at a time
            return False
        return True

    def fits(self, names: Sequence[str]) -> bool:
        return self._offers.fits(names)

    def ahead(self, names: Sequence[str]) -> int:
        """Returns how many batches the workers hold ready with these remedies."""
        settings = self._plan(names, WHOLE).settings
        return ready_batches(settings["num_workers"], settings["prefetch_factor"])

    def most_gain(self, names: Sequence[str]) -> float:
        workers = int(self._plan(names, WHOLE).settings["num_workers"])
        return max(1.0, workers / max(1, int(self.loader.num_workers)))

    def built(self, names: Sequence[str], batches: float) -> Any:
        return loader_from(self._plan(names, batches))

    def whole(self, names: Sequence[str]) -> Any:
        plan = self._plan(names, WHOLE)
        torch.set_num_threads(plan.threads)
        return loader_from(plan)

    def _by_hand(self, data: Any) -> Iterator[Any]:
        return iter(data)

    def _plan(self, names: Sequence[str], batches: float) -> LoaderPlan:
        plan = plan_of(self.loader, batches, self._threads)
        self._offers.change(plan, names)
        return plan

    def _first_batches(self, names: Sequence[str]) -> list[Any]:
        with self.states_put_back():
            torch.default_generator.manual_seed(0)
            loader = self.built(names, min(_COMPARED_BATCHES, self._number))
            loader.in_order = True
            return [_as_numpy(batch) for batch in itertools.islice(loader, _COMPARED_BATCHES)]


def computing_on(threads: int) -> Callable[[int], object]:
    """Returns a function that computes so many units with PyTorch, on so many of its threads from now on."""
    torch.set_num_threads(min(threads, torch.get_num_threads()))
    matrix = torch.eye(_SIDE)

    def compute(units: int) -> None:
        with torch.no_grad():
            for _ in range(units):
                torch.mm(matrix, matrix)

    return compute


def _as_numpy(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.detach().cpu().numpy()
    if isinstance(batch, Mapping):
        return {key: _as_numpy(value) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(_as_numpy(part) for part in batch)
    return batch


def _parts(batch: Any) -> Any:
    """Returns the types and shapes of a batch, in its structure; a list is as a tuple to whoever unpacks it."""
    if isinstance(batch, Mapping):
        return {key: _parts(part) for key, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [_parts(part) for part in batch]
    return type(batch), getattr(batch, "dtype", None), tuple(getattr(batch, "shape", ()))
