"""A tf.data pipeline, built again with remedies from its traced functions.

All pipelines that are built, also the one as written, are cut in the same place and read the same elements. Functions
of the user's are not traced again, except where a function is applied to batches.
"""

from __future__ import annotations

import atexit
import glob
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf

from unstall.profiles.machine import PageCacheError, drop
from unstall.profiles.measure.ahead import ramp_of
from unstall.profiles.measure.batches import FitData, batch_images
from unstall.profiles.remedies.data import WHOLE, Data, Failed
from unstall.profiles.remedies.remedy import PREFETCH, TUNER, Need
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.tf.tf_part import EpochPart
from unstall.profiles.remedies.tf_finding import CACHES, Finder, as_arrays
from unstall.profiles.stages import CutError, nodes, rebuilt, shuffle_buffer_of
from unstall.profiles.stages.places import Place
from unstall.profiles.stages.tf_ahead import ahead_of
from unstall.profiles.stages.tf_model import written

# Batches that are compared.
_COMPARED_BATCHES = 8
# Sides of the matrices whose product is a unit of computing, on all threads of TensorFlow or on one.
_SIDE, _SMALL_SIDE = 256, 64


class TfData(Data):
    """A tf.data pipeline of batches.

    Args:
      dataset: what was given to `fit`.
      needs: what it loses, the most first, which calls for remedies.
      room: what the remedies may take.
      repeats: whether `fit` may be told the steps of an epoch.
      uncached: why no epoch would read a cache that an earlier epoch has filled; None where epochs would.
      pool_calls: how many calls at once its maps may take; as their waiting calls for unless given.
      epoch_batches: of an epoch in the script, where tf.data does not know their number.
      place: of the call of `fit`; None where it is not known.
      only: the remedies that are looked for; all unless given. For these nothing is timed.

    Raises:
      Failed: if the pipeline cannot be taken apart or built again, or gives no batch.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        needs: Sequence[Need],
        room: Room,
        repeats: bool = True,
        uncached: str | None = None,
        pool_calls: int | None = None,
        epoch_batches: int | None = None,
        place: Place | None = None,
        only: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._dataset = dataset
        self.edges_by = TUNER if dataset.options().autotune.enabled is not False else None
        self._folder: Path | None = None
        try:
            self._nodes = nodes(dataset, needs="trying remedies needs")
            rebuilt(self._nodes, calls=room.calls)
            part = self._part = EpochPart(self._nodes, epoch_batches)
            self._ahead = ahead_of(dataset).buffered_batches
            self._finder = Finder(
                dataset, self._nodes, part, room=room, uncached=uncached, pool_calls=pool_calls, fit_place=place
            )
            first = next(iter(self.built((), 1)), None)
        except CutError as error:
            raise Failed(f"this pipeline cannot be taken apart: {error}") from error
        if first is None:
            raise Failed("this pipeline gives no batch")
        self.stages = tuple(node.name for node in self._nodes)
        self.scaled = part.scales
        endless = math.isinf(part.elements)
        self.epoch_images = None if endless else part.images(batch_images(first))
        self.epoch_batches = None if endless else part.elements / part.elements_per_batch
        self.remedies = self._finder.remedies(needs, batches=self.epoch_batches if repeats else None, only=only)
        self.untried = self._finder.untried

    def is_whole(self, batches: int) -> bool:
        return self._part.is_whole(batches)

    @property
    def notes(self) -> tuple[str, ...]:
        unknown = "The length of an epoch was not found: what it does once at its edges is in no rate."
        length = () if self._part.length_known else (unknown,)
        return (*((self.stands_in,) if self.stands_in else ()), *length, *self._readings.notes)

    @property
    def held_by(self) -> str | None:
        """The shuffle because of which only whole epochs can be measured; None if there is none."""
        return self._part.held_by

    def fits(self, names: Sequence[str]) -> bool:
        chosen, caches = set(names), set(names) & set(CACHES)
        found = self._finder.found
        if len(caches) > 1 or ("shuffle-first" in chosen and caches):
            return False
        if {"pool", "parallel"} <= chosen and set(found.sequential) <= set(found.waiting):
            return False
        return not ("batches-first" in chosen and caches and found.cache_at in found.pairs)

    def ahead(self, names: Sequence[str]) -> int:
        """Returns how many batches lie ready as written, and in what the remedy "prefetch" adds."""
        return self._ahead + (PREFETCH if "prefetch" in names else 0)

    def built(self, names: Sequence[str], batches: float) -> Any:
        try:
            return self._built(frozenset(names), batches, seeded=False)
        except (TypeError, ValueError) as error:
            raise Failed(f"it cannot be built: {error}") from error

    def close(self) -> None:
        """Removes caches on disk, and what is in them."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _first_batches(self, names: Sequence[str]) -> list[Any]:
        whole = self._part.held_by is not None
        data = self._built(frozenset(names), WHOLE if whole else _COMPARED_BATCHES, seeded=True)
        steps = _COMPARED_BATCHES
        if isinstance(data, FitData):
            data, steps = data.arguments["x"], min(steps, data.arguments["steps_per_epoch"])
        return [as_arrays(batch) for batch in data.take(steps)]

    def _built(self, names: frozenset[str], batches: float, *, seeded: bool) -> Any:
        """Builds the pipeline with remedies.

        Args:
          batches: of an epoch; more than there are for a whole epoch.
          seeded: whether shuffles get a seed, so that two pipelines have one order; else each keeps the user's own.
        """
        pipeline, part, found = self._nodes, self._part, self._finder.found
        seed = 1 if seeded else None
        own_seed: dict[str, Any] = {} if seed is None else {"seed": seed}
        calls: dict[int, int] = {}
        without: set[int] = set()
        replaced: dict[int, Any] = {}
        steps = {at: [step] for at, step in part.behind(batches).items()}
        buffers = dict(part.buffers(batches))
        if seeded:
            shuffles = (at for at, node in enumerate(pipeline) if node.kind == "shuffle")
            buffers = {at: shuffle_buffer_of(pipeline[at].dataset) for at in shuffles} | buffers
        if "parallel" in names:
            calls |= dict.fromkeys(found.sequential, self._finder.calls)
        if "pool" in names:
            calls |= dict.fromkeys(found.waiting, found.pool_calls)
        if "tuner-off" in names:
            for at, node in enumerate(pipeline):
                if written(node.dataset)[2] and node.kind == "prefetch":
                    buffers[at] = PREFETCH
                elif written(node.dataset)[2]:
                    calls.setdefault(at, self._finder.calls)
        if "batches-first" in names:
            for at, batch in found.pairs.items():
                without.add(at)
                steps.setdefault(batch, []).append(self._finder.on_batches(at, calls.get(at)))
        if "shuffle-first" in names:
            size = max(buffers.get(at, self._finder.size_of(at)) for at in found.late_shuffles)
            without |= set(found.late_shuffles)
            late = found.late_as | own_seed
            steps.setdefault(part.at, []).append(lambda dataset: dataset.shuffle(size, **late))
        if names & {"cache", "cache-on-disk"}:
            assert found.cache_at is not None
            without |= set(found.moved)
            path = self._new_path() if "cache-on-disk" in names else ""
            cached = steps.setdefault(found.cache_at, [])
            cached.append(lambda dataset: dataset.cache(path))
            if path and found.from_disk and not part.is_whole(batches):
                cached.append(lambda dataset: _without_pages(dataset, path))
            if found.shuffled:
                shuffled = self._scaled(found.shuffled, batches)
                moved = found.shuffled_as | own_seed
                cached.append(lambda dataset: dataset.shuffle(shuffled, **moved))
        if "cache-before-drawing" in names:
            assert found.frozen is not None
            at, inner, first = found.frozen
            # The cut moves in front of the cache: tf.data drops a cache that is not read to its end.
            cached = [*steps.pop(at, []), lambda dataset: dataset.cache()]
            replaced[at] = rebuilt(inner, calls="as written", behind={first - 1: _chained(cached)}, seed=seed)[-1]
        dataset = rebuilt(
            pipeline,
            calls="as written",
            replaced=replaced,
            behind={at: _chained(some) for at, some in steps.items()},
            buffers=buffers,
            without=without,
            calls_of=calls,
            seed=seed,
        )[-1]
        if "prefetch" in names:
            dataset = dataset.prefetch(PREFETCH)
        if "repeat" in names:
            assert self.epoch_batches is not None
            steps_per_epoch = math.ceil(self.epoch_batches) if part.is_whole(batches) else int(batches)
            repeated = self._with_options(dataset.repeat(), names)
            return FitData(arguments={"x": repeated, "steps_per_epoch": steps_per_epoch})
        return self._with_options(dataset, names)

    def _with_options(self, dataset: Any, names: frozenset[str]) -> Any:
        options = tf.data.Options()
        if "tuner-off" in names:
            options.autotune.enabled = False
        if "pool" in names:
            options.threading.private_threadpool_size = self._finder.found.pool_calls
        if "any-order" in names:
            options.deterministic = False
        return dataset.with_options(self._dataset.options()).with_options(options)

    def _scaled(self, size: int, batches: float) -> int:
        """Returns the size of a new shuffle's buffer in a cut epoch, of which it holds as large a part."""
        if self._part.is_whole(batches) or math.isinf(self._part.elements):
            return size
        return max(1, math.ceil(size * batches * self._part.elements_per_batch / self._part.elements))

    def _new_path(self) -> str:
        """Returns where a new cache on disk goes; `close` removes it, or else the end of this process."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="unstall-cache-"))
            atexit.register(_remove, self._folder, os.getpid())
        return tempfile.mkdtemp(dir=self._folder) + "/cache"


def steady_of(dataset: Any, steps: int) -> tuple[int, int]:
    """Returns the first of so many steps of an epoch that is steady, and the first behind it that is not."""
    return ramp_of(ahead_of(dataset), steps)[0], steps


def computing_on(threads: int) -> Callable[[int], object]:
    """Returns a function that computes so many units with TensorFlow: on all its threads, or on one."""
    # TensorFlow computes the product of small matrices on one thread.
    matrix = tf.eye(_SMALL_SIDE if threads == 1 else _SIDE)

    @tf.function(autograph=False)
    def compute(units: Any) -> Any:
        return tf.while_loop(lambda done, _: done < units, lambda done, made: (done + 1, made @ matrix), (0, matrix))

    return lambda units: compute(tf.constant(units))


def _remove(folder: Path, pid: int) -> None:
    """Removes a folder of this process, which a process that it has forked may still run at its own end."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _without_pages(cached: Any, path: str) -> Any:
    """Returns a cache on disk that Linux drops from memory whenever an epoch begins.

    The cache of a part of an epoch is small, and would be read from memory; that of a whole one is too large for it.
    """

    def drop_pages() -> bool:
        with suppress(PageCacheError):  # on a RAM disk nothing can be dropped, and nothing is read from a disk
            drop(glob.glob(f"{glob.escape(path)}*"))
        return False

    begins = tf.data.Dataset.range(1).filter(lambda _: tf.ensure_shape(tf.py_function(drop_pages, [], tf.bool), ()))
    return begins.flat_map(lambda _: cached.take(0)).concatenate(cached)


def _chained(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def apply(dataset: Any) -> Any:
        for step in steps:
            dataset = step(dataset)
        return dataset

    return apply
