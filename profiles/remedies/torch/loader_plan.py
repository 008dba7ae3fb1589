"""What a DataLoader is built from: what the script's own was built from, until a remedy replaces some of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

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


@dataclass(slots=True, kw_only=True)
class LoaderPlan:
    """What a DataLoader is built from. A remedy may replace any of it.

    There are three kinds, as a DataLoader has them: an IterableDataset, which `batch_size` and `drop_last` cut into
    batches; a data set whose samples `batch_sampler` puts together by their indices; without `batch_sampler`, a data
    set that gives whole batches, each for one index from `sampler`.

    Attributes:
      dataset: gives a sample or a whole batch for each index; an IterableDataset takes no indices.
      sampler: gives the indices one by one.
      batch_sampler: gives the indices of each batch; None where the data set gives whole batches.
      batch_size, drop_last: of an IterableDataset alone.
      settings: the other arguments, such as `num_workers` and `collate_fn`.
      batches: of an epoch; infinite for whole epochs, whose length may change where that of the sampler does. An
        IterableDataset is not cut.
      threads: of PyTorch's own, on which the steps run that take the batches.
      repeats: whether all epochs of so many batches have the samples of the first, as whole epochs have all samples.
    """

    dataset: Any
    sampler: Any
    batch_sampler: Any
    batch_size: int | None
    drop_last: bool
    settings: dict[str, Any]
    batches: float
    threads: int
    repeats: bool = False


def plan_of(loader: Any, batches: float, threads: int) -> LoaderPlan:
    """Returns what a DataLoader was built from, for epochs of so many batches and steps on so many threads."""
    return LoaderPlan(
        dataset=loader.dataset,
        sampler=loader.sampler,
        batch_sampler=loader.batch_sampler,
        batch_size=loader.batch_size,
        drop_last=loader.drop_last,
        settings={name: getattr(loader, name) for name in _KEPT if hasattr(loader, name)},
        batches=batches,
        threads=threads,
    )


def loader_from(plan: LoaderPlan) -> Any:
    """Builds a DataLoader from a plan."""
    settings = dict(plan.settings)
    if not settings.get("num_workers"):
        settings |= {"prefetch_factor": None, "persistent_workers": False}
    if not settings.get("pin_memory_device"):
        settings.pop("pin_memory_device", None)
    if isinstance(plan.dataset, IterableDataset):
        batched: dict[str, Any] = {"batch_size": plan.batch_size, "drop_last": plan.drop_last}
    elif plan.batch_sampler is None:
        batched = {"batch_size": None, "sampler": _first(plan.sampler, plan)}
    else:
        batched = {"batch_sampler": _first(plan.batch_sampler, plan)}
    loader = _OnThreads(plan.dataset, **batched, **settings)
    loader.threads = plan.threads
    return loader


class _OnThreads(DataLoader[Any]):
    """A DataLoader between whose batches PyTorch computes on so many threads: others are measured in turns with it."""

    threads: int

    def __iter__(self) -> Any:
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield from super().__iter__()
        finally:
            torch.set_num_threads(before)


def _first(sampler: Any, plan: LoaderPlan) -> Any:
    """Returns what gives the first batches of a sampler; for a whole epoch the sampler, whose length may change."""
    return sampler if math.isinf(plan.batches) else _First(sampler, int(plan.batches), repeats=plan.repeats)


class _First:
    """The first batches of indices that a sampler gives, in each epoch new ones or always the same."""

    def __init__(self, sampler: Any, batches: int, *, repeats: bool) -> None:
        self._sampler = sampler
        self._batches = batches
        self._repeats = repeats
        self._given: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        # Nothing is drawn before the first batch is asked for, as by PyTorch's own samplers.
        if not self._given or not self._repeats:
            self._given = list(itertools.islice(iter(self._sampler), self._batches))
        yield from self._given

    def __len__(self) -> int:
        return min(len(self._sampler), self._batches)
