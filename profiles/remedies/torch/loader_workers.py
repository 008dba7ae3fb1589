"""Batches made by more workers, by fewer, or by none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.remedy import Untried
from unstall.profiles.remedies.torch.loader_arguments import with_arguments

if TYPE_CHECKING:
    from unstall.profiles.remedies.torch.loader_data import LoaderData
    from unstall.profiles.remedies.torch.loader_plan import LoaderPlan


class LoaderWorkers(Change["LoaderData", "LoaderPlan"]):
    """As many workers as there are cores, half or twice as many; they stay between epochs where the loader does.

    Half of the cores are left to a model that computes on them. Without workers nothing is sent between processes,
    which takes longer than making a batch of data in memory.
    """

    names = ("workers", "half-workers", "more-workers", "fewer-workers", "no-workers")
    serves = ("waiting", "edges")

    def find(self, data: LoaderData) -> Iterator[Offer[LoaderPlan] | Untried]:
        workers, half = int(data.loader.num_workers), data.calls // 2
        if "waiting" in data.needs and data.is_iterable:
            if not workers:
                reason = "each worker would read the whole IterableDataset: divide it by get_worker_info first"
                yield Untried(name="workers", reason=reason)
        elif "waiting" in data.needs:
            for name, count in (("workers", data.calls), ("more-workers", 2 * data.calls)):
                if count > workers:
                    yield self._offer(data, name, count, f"batches made by {count} workers")
        if workers > data.calls:
            text = f"batches made by {data.calls} workers, as many as there are cores"
            yield self._offer(data, "fewer-workers", data.calls, text)
        if half and half != workers and not data.is_iterable and (workers or "waiting" in data.needs):
            text = f"batches made by {half} worker{'' if half == 1 else 's'}, half as many as there are cores"
            yield self._offer(data, "half-workers", half, text)
        if workers and not data.is_iterable:
            yield self._without(data)

    def _without(self, data: LoaderData) -> Offer[LoaderPlan]:
        settings = {"persistent_workers": False, "prefetch_factor": None}
        return with_arguments(
            data,
            "no-workers",
            # PyTorch refuses both settings without workers.
            {"num_workers": 0} | {name: value for name, value in settings.items() if name in data.passed},
            "batches made in the process that trains",
            effect="other draws" if data.draws else "identical",
            # Those two remedies set what belongs to workers.
            conflicts={*self.names, "persistent", "more-ready"} - {"no-workers"},
        )

    def _offer(self, data: LoaderData, name: str, count: int, text: str) -> Offer[LoaderPlan]:
        stays, how = ({}, "") if data.anew else ({"persistent_workers": True}, ", which stay between epochs")
        return with_arguments(
            data,
            name,
            {"num_workers": count, **stays},
            text + how,
            # Each worker has random numbers of its own, and other batches with another number of workers.
            effect="other draws" if data.draws else "identical",
            conflicts=set(self.names) - {name},
        )
