"""A cache, in memory or else on the disk: what comes before it is made once, in the first epoch."""

from __future__ import annotations

import glob
import math
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from unstall.profiles.machine import PageCacheError, drop
from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.remedy import Remedy, Untried
from unstall.profiles.remedies.tf.pipeline_view import PipelineView, only_with, shuffle_code
from unstall.profiles.remedies.tf.plan import TfPlan
from unstall.profiles.remedies.tf.tf_change import TfChange
from unstall.profiles.stages import BATCHING, random_in

# tf.data needs more than twice the size of a cache on disk for a moment. Source: tensorflow#28860.
_DISK_RATIO = 2.5
# Elements whose mean size predicts the size of a cache.
_SIZED_ELEMENTS = 8


class Cache(TfChange):
    names = ("cache", "cache-on-disk")
    serves = ("waiting", "interference")
    needs_costs = True

    def find(self, data: PipelineView) -> Iterator[Offer[TfPlan] | Untried]:
        place, why_no_later = _place(data)
        if place is None:
            if why_no_later:
                yield Untried(name="cache", reason=why_no_later)
            return
        elements = math.ceil(data.part.elements / data.part.batch_size_up_to(place))
        size_bytes = _bytes_of(data, place, elements)
        on_disk = size_bytes > data.room.memory_bytes
        if on_disk:
            no_room = _DISK_RATIO * size_bytes > data.room.disk_bytes
            limit = f"{data.room.memory_bytes / 1e6:,.0f} MB of memory"
            too_large = f"{size_bytes / 1e6:,.0f} MB behind `{data.nodes[place].name}` are more than {limit}"
            more = ", and more than the disk has room for" if no_room else ""
            yield Untried(name="cache", reason=too_large + more)
            if no_room:
                return
        shuffles = [at for at in data.part.chain if at < place and data.nodes[at].kind == "shuffle"]
        moved = [at for at in shuffles if data.is_own(at)]
        size, settings = _shuffled(data, shuffles, elements) if shuffles else (0, {})
        from_disk = on_disk and not data.room.holds_pages_of(size_bytes)

        def build(plan: TfPlan) -> None:
            is_whole = data.part.is_whole(plan.batches)
            plan.without |= {*moved}
            plan.add_after(
                place,
                partial(_cached_on_disk, plan, drops_pages=from_disk and not is_whole)
                if on_disk
                else lambda dataset: dataset.cache(),
            )
            if shuffles:
                plan.add_after(place, plan.shuffle(size if is_whole else _scaled(data, size, plan.batches), settings))

        text = _text(data, place, size_bytes, shuffled=bool(shuffles), from_disk=from_disk)
        calls = ['.cache("train.cache")' if on_disk else ".cache()"]
        calls += [shuffle_code(size, settings)] if shuffles else []
        yield Offer(remedy=_remedy(data, place, text, calls, moved, size_bytes, on_disk=on_disk), build=build)


def _remedy(
    data: PipelineView, place: int, text: str, calls: list[str], moved: list[int], size_bytes: int, *, on_disk: bool
) -> Remedy:
    """Returns the remedy.

    Args:
      place: the node that the cache goes behind.
      text: what it changes.
      calls: what goes behind the node, in the user's code: the cache, and the shuffle behind it if there is one.
      moved: shuffles whose place the new one takes.
      size_bytes: of the cache.
    """
    about = "# Remove the files train.cache* when the data or this code change."
    edits = only_with(
        [edit for call in calls for edit in data.edit(place, "behind", call)],
        [*(data.edit(place, "before", about) if on_disk else ()), *data.edits(moved, "remove", "")],
    )
    return data.remedy(
        "cache-on-disk" if on_disk else "cache",
        text,
        f"{''.join(calls)} behind {data.nodes[place].name}",
        "other order" if len(calls) > 1 else "identical",
        edits,
        at=place,
        memory_bytes=0 if on_disk else size_bytes,
        disk_bytes=size_bytes if on_disk else 0,
        warms_up=True,
    )


def _text(data: PipelineView, place: int, size_bytes: int, *, shuffled: bool, from_disk: bool) -> str:
    behind = [node.name for node in data.nodes[place + 1 :] if node.kind not in ("prefetch", "shuffle")]
    text = f"what is in front of `{behind[0] if behind else 'fit'}` made once, {size_bytes / 1e6:,.0f} MB"
    for name, elements in data.again.same.items():
        text += f"; `{name}` runs Python code, and {elements} elements were the same when made again"
    if shuffled and any(data.nodes[at].kind in BATCHING for at in data.part.chain if at <= place):
        text += "; a batch keeps its samples in all epochs"
    if from_disk:
        text += "; memory cannot hold that, so that each epoch reads it from the disk, in the trial as well"
    return text


# Its place


def _place(data: PipelineView) -> tuple[int | None, str | None]:
    """Looks for the last place in front of anything random, with everything costly in front of it.

    Returns:
      (the node to put a cache behind, what keeps it from a later place).
    """
    if math.isinf(data.part.elements):
        return None, "the pipeline has no end, or none was found"
    if data.uncached is not None:
        return None, data.uncached
    if data.part.held_by is not None:
        return None, f"{data.part.held_by} gives each epoch other elements"
    place: int | None = None
    for at in (data.part.at, *data.part.chain):
        node = data.nodes[at]
        why = _why_not_up_to(data, at) if at == data.part.at else _why_not(data, at)
        if why:
            return place, why
        if not data.can_be_cut(at) or node.kind in ("shuffle", "repeat"):
            continue
        # A cache stands before a prefetch, unless a library made both, as in `image_dataset_from_directory`.
        if node.kind == "prefetch" and any(map(data.can_be_cut, node.inputs)):
            continue
        works = any(before.kind in ("map", "interleave", "flat_map") for before in data.nodes[: at + 1])
        busy = place is None or any(map(data.costs.matter, range(place + 1, at + 1)))
        # A cache of single elements is shuffled better than one of batches.
        if works and (node.kind not in BATCHING or place is None or busy):
            place = at
    return place, None


def _why_not_up_to(data: PipelineView, at: int) -> str | None:
    """Returns what draws in a node or in front of it, or shuffles in front of it: no cache may stand behind."""
    waiting, seen = [at], {at}
    while waiting:
        position = waiting.pop()
        node = data.nodes[position]
        if why := _why_not(data, position):
            return why
        if position != at and node.kind == "shuffle":
            return f"the shuffle in front of `{data.nodes[at].name}` would give all epochs the order of the first"
        waiting += [before for before in node.inputs if before not in seen]
        seen |= set(node.inputs)
    return None


def _why_not(data: PipelineView, at: int) -> str | None:
    """Returns what in a transformation draws random numbers, or may, and what to do; None if nothing draws.

    No cache belongs behind such a transformation: all epochs would get the draws of the first.
    """
    if drawn := random_in(data.nodes[at].dataset):
        return (
            f"{', '.join(drawn)} is random, and nothing that costs time comes before it; draw in a map of its own, "
            "behind the decoding"
        )
    if python := data.python_that_draws(at):
        return (
            f"{', '.join(python)}, which draws: a cache would keep the first epoch's draws for all that follow; draw "
            "in a map of its own, behind the cache"
        )
    return None


# Its size, and that of the shuffle behind it


def _bytes_of(data: PipelineView, at: int, elements: int) -> int:
    """Predicts the size of a cache behind a node from some of its elements."""
    import tensorflow as tf

    sizes = []
    for element in data.part.up_to(at, _SIZED_ELEMENTS).take(_SIZED_ELEMENTS):
        sizes.append(sum(_size_bytes(part) for part in tf.nest.flatten(element, expand_composites=True)))
    return int(np.mean(sizes) * elements) if sizes else 0


def _size_bytes(part: Any) -> int:
    array = np.asarray(part.numpy() if hasattr(part, "numpy") else part)
    return sum(len(text) + 33 for text in array.ravel()) if array.dtype == object else array.nbytes


def _shuffled(data: PipelineView, shuffles: list[int], elements: int) -> tuple[int, dict[str, Any]]:
    """Returns the (buffer size, seed and the like) of the shuffle behind a cache of so many elements."""
    largest = max(map(data.buffer_of, shuffles))
    return max(1, math.ceil(largest * elements / max(data.part.elements, 1))), data.settings_of(shuffles)


def _scaled(data: PipelineView, size: int, batches: float) -> int:
    """Returns the size of the shuffle's buffer in a cut epoch, of which it holds as large a part."""
    return max(1, math.ceil(size * batches * data.part.elements_per_batch / data.part.elements))


# On the disk


def _cached_on_disk(plan: TfPlan, dataset: Any, *, drops_pages: bool) -> Any:
    path = plan.new_path()
    cached = dataset.cache(path)
    return _without_pages(cached, path) if drops_pages else cached


def _without_pages(cached: Any, path: str) -> Any:
    """Returns a cache on disk that Linux drops from memory whenever an epoch begins.

    The cache of a part of an epoch is small, and would be read from memory; that of a whole one is too large for it.
    """
    import tensorflow as tf

    def drop_pages() -> bool:
        with suppress(PageCacheError):  # on a RAM disk nothing can be dropped, and nothing is read from a disk
            drop(glob.glob(f"{glob.escape(path)}*"))
        return False

    begins = tf.data.Dataset.range(1).filter(lambda _: tf.ensure_shape(tf.py_function(drop_pages, [], tf.bool), ()))
    return begins.flat_map(lambda _: cached.take(0)).concatenate(cached)
