"""Batches of a PyDataset kept in memory after their first making, where they are the same in each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.reading_twice import Refused, read_twice
from unstall.profiles.remedies.remedy import Edit, Remedy, Untried
from unstall.profiles.remedies.written_class import written

if TYPE_CHECKING:
    from unstall.profiles.remedies.keras.py_dataset import DatasetPlan, PyDatasetData

_NAME = "cache-samples"


class CacheBatches(Change["PyDatasetData", "DatasetPlan"]):
    """For a PyDataset or a `Sequence` that loads its files again in each epoch, and neither shuffles nor draws."""

    names = (_NAME,)
    serves = ("waiting", "interference")

    def find(self, data: PyDatasetData) -> Iterator[Offer[DatasetPlan] | Untried]:
        from unstall.profiles.remedies.keras.kept_batches import KeptBatches

        dataset = data.dataset
        if not data.has_epochs:
            return
        if data.unkept is not None:
            yield Untried(name=_NAME, reason=data.unkept)
            return
        if dataset.use_multiprocessing:
            reason = "Keras' worker processes are forks: each would keep batches of its own, and make all of them"
            yield Untried(name=_NAME, reason=reason)
            return
        own = [name for name in ("on_epoch_begin", "on_epoch_end") if _is_own(dataset, name)]
        if own:
            yield Untried(name=_NAME, reason=f"its `{own[0]}` may change the batches from epoch to epoch")
            return
        read = read_twice(dataset, dataset.num_batches, "batch", _arrays_of, watched=dataset)
        if read is None:
            return
        if isinstance(read, Refused):
            way_out = ", and epochs would get the first one's" if read.draws else ""
            yield Untried(name=_NAME, reason=read.reason + way_out)
            return
        size_bytes = read.bytes_each * dataset.num_batches
        limit = data.room.memory_limit(size_bytes)
        if limit is not None:
            yield Untried(name=_NAME, reason=f"its batches have {size_bytes / 1e6:,.0f} MB, more than {limit}")
            return

        def build(plan: DatasetPlan) -> None:
            plan.dataset = KeptBatches(plan.dataset)

        place = data.place
        remedy = Remedy(
            name=_NAME,
            text=f"batches made once and kept, {size_bytes / 1e6:,.0f} MB; "
            f"{read.count} of them were the same when made again",
            code=f"KeptBatches({data.name or 'data'})",
            effect="identical",
            place=None if place is None else str(place),
            edits=()
            if place is None
            else (
                Edit(place=place, kind="define", text=written(KeptBatches)),
                Edit(place=place, kind="feed", text="KeptBatches({data})"),
            ),
            memory_bytes=size_bytes,
            warms_up=True,
        )
        yield Offer(remedy=remedy, build=build, conflicts=frozenset({"processes"}))


def _is_own(dataset: Any, name: str) -> bool:
    """Whether a class of the user's, or of a library's generators, has a method of this name of its own."""
    import keras

    return getattr(type(dataset), name, None) is not getattr(keras.utils.PyDataset, name, None)


def _arrays_of(batch: Any) -> list[np.ndarray]:
    import keras

    leaves = [np.asarray(leaf) for leaf in keras.tree.flatten(batch) if leaf is not None]
    if any(leaf.dtype.kind == "O" for leaf in leaves):
        raise TypeError("they hold more than numbers and texts")
    return leaves
