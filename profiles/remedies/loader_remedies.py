"""Remedies for a `DataLoader` of PyTorch's, made anew with the same arguments, and the loop that tries them.

The steps of a script's loop are its own code, which cannot be run apart. A stand-in takes their place: the modules and
optimizers that a step called, where these are known; else as much computing, on as many threads, as a step took; on a
GPU, which leaves the cores to the loader, a sleep.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from profiles import clock
from profiles.machine.others import Others
from profiles.remedies.edits import reads_as
from profiles.remedies.equality import Comparison, Readings, compare
from profiles.remedies.remedy import Edit, Need, Remedy, Untried
from profiles.remedies.turns import Failed
from profiles.samples import Sample
from profiles.stages.places import place_of

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
)
# The side of the matrices whose product is a unit of the stand-in's computing: about half a millisecond.
_SIDE = 256


class LoaderData:
    """A DataLoader, as `profiles.remedies.turns.Data`.

    Args:
      loader: of the script.
      needs: what it loses, the most first, which calls for remedies.
      calls: how many workers the cores can take.
      images_per_batch: of a full batch; None where that is not known.
      pins: whether the loop trains on a GPU, so that pinned memory may help.

    Attributes:
      stands_in: says what takes the place of the script's steps.

    Raises:
      Failed: if the loader has no length.
    """

    scaled = tuned = False
    stages: tuple[str, ...] = ()

    def __init__(
        self, loader: Any, *, needs: Collection[Need], calls: int, images_per_batch: int | None, pins: bool = False
    ) -> None:
        self._loader = loader
        try:
            self._number = len(loader)
        except TypeError as error:
            raise Failed("the loader has no length") from error
        self.untried: list[Untried] = []
        self.epoch_batches: float | None = float(self._number)
        self.epoch_images = None if images_per_batch is None else float(self._number * images_per_batch)
        stand_in = "a sleep" if pins else "as much computing"
        self.stands_in = f"The loop's own steps cannot be run apart: {stand_in} of the same length stands in for them."
        self._readings = Readings(self._first_batches)
        self._changed: dict[str, dict[str, Any]] = {}
        self._place = place_of(loader)
        self.remedies = self._find(frozenset(needs), max(1, calls), pins)

    def is_whole(self, batches: int) -> bool:
        return batches >= self._number

    def fits(self, names: Sequence[str]) -> bool:
        """Whether these remedies can be combined."""
        return not {"workers", "more-workers"} <= set(names)

    def ahead(self, names: Sequence[str]) -> int:
        """Returns how many batches the workers hold ready with these remedies."""
        settings = self._settings(names)
        return _ready(settings["num_workers"], settings["prefetch_factor"])

    def built(self, names: Sequence[str], batches: int) -> Any:
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
            sampler = _First(self._loader.sampler, batches)
            return DataLoader(self._loader.dataset, batch_size=None, sampler=sampler, **settings)
        return DataLoader(self._loader.dataset, batch_sampler=_First(self._loader.batch_sampler, batches), **settings)

    def whole(self, names: Sequence[str]) -> Any:
        """Returns the loader of whole epochs with these remedies, to be used in the place of the user's."""
        return self.built(names, self._number)

    def compared(self, names: Sequence[str]) -> Comparison:
        return self._readings.compared(names)

    @property
    def notes(self) -> tuple[str, ...]:
        return (self.stands_in, *self._readings.notes)

    def _settings(self, names: Sequence[str]) -> dict[str, Any]:
        settings = {name: getattr(self._loader, name) for name in _KEPT if hasattr(self._loader, name)}
        for name in names:
            settings |= self._changed[name]
        return settings

    def _first_batches(self, names: Sequence[str]) -> list[Any]:
        """Returns the first batches of an epoch whose order comes again; PyTorch's random state stays what it was."""
        state = torch.get_rng_state()
        torch.manual_seed(0)
        try:
            loader = self.built(names, min(_COMPARED_BATCHES, self._number))
            return [_as_numpy(batch) for batch in itertools.islice(loader, _COMPARED_BATCHES)]
        finally:
            torch.set_rng_state(state)

    @cached_property
    def _draws(self) -> bool:
        """Whether samples depend on PyTorch's random numbers, as most augmentation does."""
        if isinstance(self._loader.dataset, IterableDataset) or not self._number:
            return False
        state = torch.get_rng_state()
        try:
            torch.manual_seed(0)
            sampler = self._loader.sampler if self._loader.batch_sampler is None else self._loader.batch_sampler
            first = next(iter(sampler))
            indices = first[:_COMPARED_SAMPLES] if isinstance(first, (list, tuple)) else [first]
            readings = []
            for seed in (1, 1, 2):
                torch.manual_seed(seed)
                readings.append([_as_numpy(self._loader.dataset[index]) for index in indices])
            again, drawn = (compare(readings[0], reading).effect for reading in readings[1:])
            return again == "identical" and drawn != "identical"
        except Exception:  # code of the user's, which shows its error where the loader is read
            return False
        finally:
            torch.set_rng_state(state)

    def _find(self, needs: frozenset[Need], calls: int, pins: bool) -> tuple[Remedy, ...]:
        loader, workers = self._loader, int(self._loader.num_workers)
        remedies: list[Remedy] = []
        stays = {"persistent_workers": True}
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
                            "batches made by {0} workers, which stay between epochs",
                        )
                    )
        if workers and not loader.persistent_workers and needs & {"edges", "waiting"}:
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
            code=(reads_as(edits) if edits else None) or f"DataLoader(..., {', '.join(arguments)})",
            # Each worker has random numbers of its own, and other batches with another number of workers.
            effect="other draws" if "num_workers" in settings and self._draws else "identical",
            place=None if self._place is None else str(self._place),
            edits=edits,
        )


class _First:
    """The first batches of indices that a sampler gives."""

    def __init__(self, sampler: Any, batches: int) -> None:
        self._sampler = sampler
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._sampler), self._batches)

    def __len__(self) -> int:
        return min(len(self._sampler), self._batches)


def stand_in(step_s: float, *, sleeps: bool) -> Callable[[], None]:
    """Returns a function that computes for `step_s` on PyTorch's threads when nothing else runs, or sleeps so long."""
    if sleeps:
        return lambda: clock.sleep_until_ns(clock.now_ns() + int(step_s * 1e9))
    matrices = torch.rand(_SIDE, _SIDE), torch.rand(_SIDE, _SIDE)

    def compute(units: int) -> None:
        with torch.no_grad():
            for _ in range(units):
                torch.mm(*matrices)

    compute(20)
    units, taken_ns = 20, 0
    while taken_ns < 50_000_000:
        units *= 2
        began_ns = clock.now_ns()
        compute(units)
        taken_ns = clock.now_ns() - began_ns
    for_step = max(1, round(step_s * 1e9 * units / taken_ns))
    return lambda: compute(for_step)


def measure_loop(
    step: Callable[[], None],
    images_in: Callable[[Any], int | None],
    loader: Any,
    epochs: int,
    window: str,
    round_: int,
    limit_s: float,
) -> Sample:
    """Times a loop over a loader, with a step of the caller's for each batch.

    Args:
      step: takes the place of the script's step.
      images_in: returns the images of a batch.
      loader, epochs, window, round_, limit_s: of `profiles.remedies.turns.Measure`.
    Raises:
      Failed: if an epoch takes longer than `limit_s`, or has no batch.
    """
    canary_ns, others, cpu_ns = clock.canary_ns(), Others(), clock.cpu_ns()
    steady_ns = steady_wait_ns = steady_images = all_images = 0
    step_ns: list[int] = []
    first_batch_ns: list[int] = []
    waves = max(1, int(loader.num_workers))
    ramp_steps, ready = max(_RAMP_STEPS, waves), _ready(loader.num_workers, loader.prefetch_factor)
    began_ns = clock.now_ns()
    for _ in range(epochs):
        epoch_began_ns = clock.now_ns()
        steps: list[tuple[int, int, int, int]] = []
        batches = iter(loader)
        while True:
            asked_ns = clock.now_ns()
            if asked_ns - epoch_began_ns > limit_s * 1e9:
                raise Failed(f"an epoch takes longer than {limit_s:.0f} s")
            batch = next(batches, None)
            if batch is None:
                break
            came_ns = clock.now_ns()
            step()
            steps.append((asked_ns, came_ns, clock.now_ns(), images_in(batch) or 1))
        del batches
        if not steps:
            raise Failed("the loader gives no batch")
        first, last = 0, len(steps)
        if len(steps) >= 2 * waves + _RAMP_STEPS:
            # While the last batches wait ready, nothing is loaded beside the steps.
            last = max(last - ready, ramp_steps + waves)
            first = min(ramp_steps + (last - ramp_steps) % waves, last - 1)
        steady = steps[first:last]
        steady_ns += steady[-1][2] - steady[0][0]
        steady_wait_ns += sum(came - asked for asked, came, _, _ in steady)
        steady_images += sum(images for *_, images in steady)
        all_images += sum(images for *_, images in steps)
        step_ns += [done - asked for asked, _, done, _ in steady]
        first_batch_ns.append(steps[0][1] - epoch_began_ns)
    ended_ns = clock.now_ns()
    return Sample(
        window=window,
        round=round_,
        images=steady_images,
        wall_ns=max(1, steady_ns),
        wait_ns=steady_wait_ns,
        step_ns=tuple(step_ns),
        epochs=epochs,
        epoch_images=all_images,
        epoch_ns=ended_ns - began_ns,
        first_batch_ns=tuple(first_batch_ns),
        outer_ns=ended_ns - began_ns,
        claimed_ns=None,
        cpu_ns=clock.cpu_ns() - cpu_ns,
        canary_ns=canary_ns,
        others_ratio=others.ratio(),
    )


def _ready(workers: int, each: int | None) -> int:
    """Returns how many batches the workers of a DataLoader hold ready; PyTorch's default is two for each."""
    return workers * (_DEFAULT_FACTOR if each is None else each)


def _as_numpy(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.detach().cpu().numpy()
    if isinstance(batch, dict):
        return {key: _as_numpy(value) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(_as_numpy(part) for part in batch)
    return batch
