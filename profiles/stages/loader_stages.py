"""Measures the stages of a `DataLoader` of PyTorch's: its dataset, its `collate_fn`, and the way from its workers."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from unstall.profiles import clock
from unstall.profiles.code_line import named
from unstall.profiles.stage_table import SCRIPTS_OWN, StageTable
from unstall.profiles.stages.call_timer import (
    COLLATE,
    ITEM,
    CallTimer,
    images_tail,
    note_processes,
    stages_of,
    storage_seen,
)
from unstall.profiles.stages.decoded import pixels_decoded
from unstall.profiles.stages.note import Note, unnoted
from unstall.profiles.stages.places import is_library
from unstall.profiles.stages.users_lines import users_lines
from unstall.profiles.statistics import median
from unstall.profiles.unit import images_in

_ROUNDS = 3
# How long a round lasts, about, and how many batches each worker makes in a round, at least.
_ROUND_S, _LEAST_BATCHES_PER_WORKER = 0.8, 3
# Settings of a DataLoader that decide how batches come from its workers.
_KEPT = ("num_workers", "pin_memory", "worker_init_fn", "multiprocessing_context", "prefetch_factor", "in_order")


def loader_table(loader: Any, *, cores: float, files: int = 1, note: Note = unnoted) -> StageTable:
    """Measures what each stage of a DataLoader costs, with as many workers as it has.

    Rounds with and without timed calls alternate. The rounds without say what the whole loader costs.

    Args:
      loader: whose data set is read by index.
      cores: number of cores that this process may use.
      files: from how many files the data set makes a sample.
      note: called with the number of rounds that were made, and of all.
    Returns:
      The table; without stages, and with the reason, where this kind of loader cannot be taken apart.
    """
    if isinstance(loader.dataset, IterableDataset):
        return StageTable(cores=cores, reason="an IterableDataset is read once: only its waiting can be seen")
    workers = int(loader.num_workers)
    timer = CallTimer(files)
    note(0, _ROUNDS)
    state = torch.get_rng_state()
    scripts_processes = note_processes()
    images = cpu_ns = wall_ns = 0
    starts_s: list[float] = []
    try:
        plain = _Batches(loader, None)
        plain.keep(max(1, workers))
        timed = _Batches(loader, timer, plain.indices)
        seen = timer
        if workers:  # names of files are seen in this process only
            seen = CallTimer(files)
            with seen.installed():
                _Batches(loader, seen, plain.indices)[0]
        for number in range(_ROUNDS):
            began_ns, began_cpu_ns = clock.now_ns(), clock.cpu_ns()
            for at, batch in enumerate(_loader_of(plain, loader)):
                if not at:
                    starts_s.append((clock.now_ns() - began_ns) / 1e9 - plain.batch_s)
                images += images_in(batch) or 1
            wall_ns += clock.now_ns() - began_ns
            cpu_ns += clock.cpu_ns() - began_cpu_ns
            with timer.installed():
                for _ in _loader_of(timed, loader):
                    pass
            note(number + 1, _ROUNDS)
        decoded, wanted = pixels_decoded(plain.make_another, channels_axis=1)
        lines = users_lines(plain.make_another)
    finally:
        torch.set_rng_state(state)
    times = timer.times
    if not times.batches or not images:
        return StageTable(cores=cores, reason="its worker processes are not forked: nothing was seen of them")
    ways = [*scripts_processes(), "PyTorch's own code between the batches"]
    ways += ["sending batches between processes"] if workers else []
    ways += ["pinning their memory"] if loader.pin_memory else []
    item = _item_of(loader.dataset)
    return StageTable(
        stages=tuple(replace(stage, **item) if stage.name == ITEM.name else stage for stage in stages_of(times)),
        cores=cores,
        loader_cpu_us_per_image=cpu_ns / images / 1e3,
        effective_parallelism=cpu_ns / wall_ns,
        workers=workers,
        workers_seen=times.workers,
        workers_start_s=max(median(starts_s), 0.0) if workers and not loader.persistent_workers else None,
        lines=lines,
        decoded_pixels=decoded,
        wanted_pixels=wanted,
        rest=", ".join(ways),
        tail=images_tail(times),
        storage=storage_seen(seen.times),
    )


class _Batches:
    """A data set of whole batches: the samples of each, put together as the loader does it.

    Attributes:
      indices: of the samples of each batch, or of a batch where the loader's data set gives whole batches.
      batch_s: time to make one of the batches.
    """

    def __init__(self, loader: Any, timer: CallTimer | None, indices: list[Any] | None = None) -> None:
        self.indices = indices or []
        self._loader = loader
        self._timer = timer
        self._made, self.batch_s = 0, 0.0
        self._collate = loader.collate_fn
        dataset = loader.dataset
        self._samples = lambda indices: [dataset[index] for index in indices]
        if loader.batch_sampler is None:
            self._samples = lambda index: dataset[index]
        elif getattr(dataset, "__getitems__", None) is not None:
            self._samples = dataset.__getitems__
        # The samples of a batch are timed all at once: to time one takes as long as to read one from memory.
        if timer is not None:
            self._collate = timer.timed(self._collate, COLLATE)
            self._samples = timer.timed(self._samples, ITEM)

    def keep(self, workers: int) -> None:
        """Keeps as many batches as make a round, judged by the time of the first."""
        sampler = self._loader.sampler if self._loader.batch_sampler is None else self._loader.batch_sampler
        first, *others = itertools.islice(iter(sampler), 10_000)
        self.indices = [first]
        self._make(first)  # opens and imports what later ones find
        began_ns = clock.now_ns()
        self._make(first)
        self.batch_s = (clock.now_ns() - began_ns) / 1e9
        wanted = max(round(_ROUND_S * workers / max(self.batch_s, 1e-4)), _LEAST_BATCHES_PER_WORKER * workers)
        self.indices += others[: wanted - 1]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, number: int) -> Any:
        if self._timer is None:
            return self._make(self.indices[number])
        return self._timer.batch(lambda: self._make(self.indices[number]), lambda batch: images_in(batch) or 1)

    def make_another(self) -> Any:
        """Makes the next of the batches, after the last one the first again."""
        self._made += 1
        return self._make(self.indices[self._made % len(self.indices)])

    def _make(self, indices: Any) -> Any:
        return self._collate(self._samples(indices))


def _item_of(dataset: Any) -> dict[str, Any]:
    """Returns the name, kind and place of the function that makes a sample, as `Stage` has them."""
    while type(dataset).__module__.startswith("torch.utils.data") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset  # a part of the user's own data set
    name, kind = f"{type(dataset).__name__}.__getitem__", type(dataset).__module__.partition(".")[0]
    code = getattr(getattr(type(dataset), "__getitem__", None), "__code__", None)
    if code is None or is_library(code.co_filename):
        return {"name": name, "kind": "PyTorch" if kind == "torch" else kind}
    place = f"{named(code.co_filename)}:{code.co_firstlineno}"
    return {"name": name, "kind": SCRIPTS_OWN, "location": place}


def _loader_of(batches: _Batches, loader: Any) -> DataLoader[Any]:
    settings = {name: getattr(loader, name) for name in _KEPT if hasattr(loader, name)}
    return DataLoader(batches, batch_size=None, collate_fn=_as_it_is, **settings)


def _as_it_is(batch: Any) -> Any:
    return batch
