"""Batches made by more of Keras' threads, or by fewer processes where there are more of them than cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.keras.dataset_settings import with_settings

if TYPE_CHECKING:
    from unstall.profiles.remedies.keras.py_dataset import DatasetPlan, PyDatasetData

# A core can take several threads, which may wait for files or a network.
_THREADS_PER_CORE = 4


class KerasWorkers(Change["PyDatasetData", "DatasetPlan"]):
    """Another number of workers, of the kind that the PyDataset has."""

    names = ("workers", "more-workers", "fewer-workers")
    serves = ("waiting", "interference", "edges")

    def find(self, data: PyDatasetData) -> Iterator[Offer[DatasetPlan]]:
        workers, many = int(data.dataset.workers or 1), _THREADS_PER_CORE * data.calls
        if data.dataset.use_multiprocessing:
            if workers > data.calls:
                yield self._offer(data, "fewer-workers", {"workers": data.calls})
        elif not data.needs.isdisjoint(("waiting", "interference")):
            if workers < data.calls:
                yield self._offer(data, "workers", {"workers": data.calls, "max_queue_size": data.queue})
            if workers < many:
                settings = {"workers": many, "max_queue_size": max(data.queue, many)}
                yield self._offer(data, "more-workers", settings)
        elif data.edges_by:
            yield self._offer(data, "workers", {"workers": data.calls})

    def _offer(self, data: PyDatasetData, name: str, settings: Mapping[str, Any]) -> Offer[DatasetPlan]:
        return with_settings(data, name, settings, conflicts=set(self.names) - {name})
