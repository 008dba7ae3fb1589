"""Remedies for a `DataLoader` of PyTorch's, made anew with the same arguments."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from unstall.profiles.remedies.data import Data, Failed
from unstall.profiles.remedies.equality import compare
from unstall.profiles.remedies.remedy import Edit, Need, Remedy, Untried
from unstall.profiles.stages.places import place_of

# Batches that are compared, and how many each worker has ready with the remedy "more-ready", and by PyTorch's default.
_COMPARED_BATCHES, _PREFETCH_FACTOR, _DEFAULT_FACTOR = 4, 4, 2
# Samples that are made with two seeds, to see whether they draw.
_COMPARED_SAMPLES = 8
# First steps of an epoch that are not steady.
_RAMP_STEPS = 2
# Arguments of a DataLoader that are attributes of it as well.
_KEPT = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
    "in_order",
)
# The side of the matrices whose product is a unit of the stand-in's computing: about half a millisecond.
_SIDE = 256


class LoaderData(Data):
    """A DataLoader.

    Args:
      loader: of the script.
      needs: what it loses, the most first, which calls for remedies.
      calls: how many workers the cores can take.
      images_per_batch: of a full batch; None where that is not known.
      pins: whether the loop trains on a GPU, so that pinned memory may help.
      anew: whether the script makes the loader anew for each epoch, so that no workers can stay.

    Raises:
      Failed: if the loader has no length.
    """

    def __init__(
        self,
        loader: Any,
        *,
        needs: Collection[Need],
        calls: int,
        images_per_batch: int | None,
        pins: bool = False,
        anew: bool = False,
    ) -> None:
        super().__init__()
        self._loader = loader
        try:
            self._number = len(loader)
        except TypeError as error:
            raise Failed("the loader has no length") from error
        starts_anew = bool(loader.num_workers) and not loader.persistent_workers
        self.edges_by = "workers that start anew" if starts_anew else None
        self.epoch_batches = float(self._number)
        self.epoch_images = None if images_per_batch is None else float(self._number * images_per_batch)
        self._changed: dict[str, dict[str, Any]] = {}
        self._place = place_of(loader)
        self._anew = anew
        self.remedies = self._find(frozenset(needs), max(1, calls), pins)

    def fits(self, names: Sequence[str]) -> bool:
        return len({"workers", "more-workers", "fewer-workers"} & set(names)) < 2

    def ahead(self, names: Sequence[str]) -> int:
        """Returns how many batches the workers hold ready with these remedies."""
        settings = self._settings(names)
        return _ready(settings["num_workers"], settings["prefetch_factor"])

    def most_gain(self, names: Sequence[str]) -> float:
        return max(1.0, int(self._settings(names)["num_workers"]) / max(1, int(self._loader.num_workers)))

    def built(self, names: Sequence[str], batches: float) -> Any:
        settings = self._settings(names)
        if not settings.get("num_workers"):
            settings |= {"prefetch_factor": None, "persistent_workers": False}
        if not settings.get("pin_memory_device"):
            settings.pop("pin_memory_device", None)
        if isinstance(self._loader.dataset, IterableDataset):
            return DataLoader(
                self._loader.dataset, batch_size=self._loader.batch_size, drop_last=self._loader.drop_last, **settings
            )
        if self._loader.batch_sampler is None:  # the data set gives whole batches
            sampler = _first(self._loader.sampler, batches)
            return DataLoader(self._loader.dataset, batch_size=None, sampler=sampler, **settings)
        return DataLoader(self._loader.dataset, batch_sampler=_first(self._loader.batch_sampler, batches), **settings)

    def _by_hand(self, data: Any) -> Iterator[Any]:
        return iter(data)

    def _settings(self, names: Sequence[str]) -> dict[str, Any]:
        settings = {name: getattr(self._loader, name) for name in _KEPT if hasattr(self._loader, name)}
        for name in names:
            settings |= self._changed[name]
        return settings

    def _first_batches(self, names: Sequence[str]) -> list[Any]:
        with _states_put_back(self._loader):
            torch.default_generator.manual_seed(0)
            loader = self.built(names, min(_COMPARED_BATCHES, self._number))
            loader.in_order = True
            return [_as_numpy(batch) for batch in itertools.islice(loader, _COMPARED_BATCHES)]

    @cached_property
    def _draws(self) -> bool:
        """Whether samples depend on PyTorch's random numbers, as most augmentation does."""
        if isinstance(self._loader.dataset, IterableDataset) or not self._number:
            return False
        try:
            with _states_put_back(self._loader):
                sampler = self._loader.sampler if self._loader.batch_sampler is None else self._loader.batch_sampler
                first = next(iter(sampler))
                indices = first[:_COMPARED_SAMPLES] if isinstance(first, (list, tuple)) else [first]
                readings = []
                for seed in (1, 1, 2):
                    torch.default_generator.manual_seed(seed)
                    readings.append([_as_numpy(self._loader.dataset[index]) for index in indices])
            again, drawn = (compare(readings[0], reading).effect for reading in readings[1:])
            return again == "identical" and drawn != "identical"
        except Exception:  # code of the user's, which shows its error where the loader is read
            return False

    def _find(self, needs: frozenset[Need], calls: int, pins: bool) -> tuple[Remedy, ...]:
        loader, workers = self._loader, int(self._loader.num_workers)
        remedies: list[Remedy] = []
        stays, how = ({}, "") if self._anew else ({"persistent_workers": True}, ", which stay between epochs")
        if "waiting" in needs and isinstance(loader.dataset, IterableDataset):
            if not workers:
                reason = "each worker would read the whole IterableDataset: divide it by get_worker_info first"
                self.untried.append(Untried(name="workers", reason=reason))
        elif "waiting" in needs:
            for name, count in (("workers", calls), ("more-workers", 2 * calls)):
                if count > workers:
                    remedies.append(
                        self._remedy(
                            name,
                            {"num_workers": count, **stays},
                            f"batches made by {{0}} workers{how}",
                        )
                    )
        if workers > calls and needs & {"edges", "waiting"}:
            text = f"batches made by {{0}} workers, as many as there are cores{how}"
            remedies.append(self._remedy("fewer-workers", {"num_workers": calls, **stays}, text))
        if self._anew and workers and "edges" in needs:
            reason = "the script makes the loader anew for each epoch: make it once, in front of all epochs"
            self.untried.append(Untried(name="persistent", reason=reason))
        elif workers and stays and not loader.persistent_workers and needs & {"edges", "waiting"}:
            remedies.append(self._remedy("persistent", stays, "workers that stay between epochs"))
        if workers and "waiting" in needs and (loader.prefetch_factor or 0) < _PREFETCH_FACTOR:
            remedies.append(
                self._remedy("more-ready", {"prefetch_factor": _PREFETCH_FACTOR}, "{0} batches ready for each worker")
            )
        if pins and not loader.pin_memory:
            remedies.append(self._remedy("pin", {"pin_memory": True}, "batches in memory from which a GPU can copy"))
        return tuple(remedies)

    def _remedy(self, name: str, settings: dict[str, Any], text: str) -> Remedy:
        self._changed[name] = settings
        arguments = [f"{key}={value}" for key, value in settings.items()]
        edits = (
            ()
            if self._place is None
            else tuple(Edit(place=self._place, kind="argument", text=text) for text in arguments)
        )
        return Remedy(
            name=name,
            text=text.format(*settings.values()),
            code=f"DataLoader(..., {', '.join(arguments)})",
            # Each worker has random numbers of its own, and other batches with another number of workers.
            effect="other draws" if "num_workers" in settings and self._draws else "identical",
            ends_edges=bool(settings.get("persistent_workers")),
            place=None if self._place is None else str(self._place),
            edits=edits,
        )


@contextlib.contextmanager
def _states_put_back(loader: Any) -> Iterator[None]:
    """Puts back the random states of PyTorch on the CPU and of the loader when the block ends.

    Inside, seed `torch.default_generator`: `torch.manual_seed` would seed the GPU as well.
    """
    owners = (loader, loader.sampler, loader.batch_sampler)
    given = [generator for owner in owners if (generator := getattr(owner, "generator", None)) is not None]
    states = [(generator, generator.get_state()) for generator in (torch.default_generator, *given)]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)


def _first(sampler: Any, batches: float) -> Any:
    """Returns what gives the first batches of a sampler; for a whole epoch the sampler, whose length may change."""
    return sampler if math.isinf(batches) else _First(sampler, int(batches))


class _First:
    """The first batches of indices that a sampler gives."""

    def __init__(self, sampler: Any, batches: int) -> None:
        self._sampler = sampler
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._sampler), self._batches)

    def __len__(self) -> int:
        return min(len(self._sampler), self._batches)


def computing_on(threads: int) -> Callable[[int], object]:
    """Returns a function that computes so many units with PyTorch, on so many of its threads from now on."""
    torch.set_num_threads(min(threads, torch.get_num_threads()))
    matrix = torch.eye(_SIDE)

    def compute(units: int) -> None:
        with torch.no_grad():
            for _ in range(units):
                torch.mm(matrix, matrix)

    return compute


def steady_of(loader: Any, steps: int) -> tuple[int, int]:
    """Returns the first of so many steps of an epoch that is steady, and the first behind it that is not."""
    waves = max(1, int(loader.num_workers))
    ramp_steps = max(_RAMP_STEPS, waves)
    if steps < 2 * waves + _RAMP_STEPS:
        return 0, steps
    # While the last batches wait ready, nothing is loaded beside the steps.
    last = max(steps - _ready(loader.num_workers, loader.prefetch_factor), ramp_steps + waves)
    return min(ramp_steps + (last - ramp_steps) % waves, last - 1), last


def _ready(workers: int, each: int | None) -> int:
    """Returns how many batches the workers of a DataLoader hold ready; PyTorch's default is two for each."""
    return workers * (_DEFAULT_FACTOR if each is None else each)


def _as_numpy(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.detach().cpu().numpy()
    if isinstance(batch, Mapping):
        return {key: _as_numpy(value) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(_as_numpy(part) for part in batch)
    return batch
