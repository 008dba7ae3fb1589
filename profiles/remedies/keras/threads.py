"""Batches made by Keras' threads instead of its worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.keras.dataset_settings import with_settings
from unstall.profiles.remedies.keras.keras_workers import KerasWorkers
from unstall.profiles.remedies.keras.processes import Processes

if TYPE_CHECKING:
    from unstall.profiles.remedies.keras.py_dataset import DatasetPlan, PyDatasetData


class Threads(Change["PyDatasetData", "DatasetPlan"]):
    """As many threads as there are cores, where the PyDataset has processes."""

    names = ("threads",)
    serves = ("waiting", "interference", "edges")

    def find(self, data: PyDatasetData) -> Iterator[Offer[DatasetPlan]]:
        if data.dataset.use_multiprocessing:
            settings = {"workers": data.calls, "use_multiprocessing": False, "max_queue_size": data.queue}
            yield with_settings(data, "threads", settings, conflicts=(*KerasWorkers.names, *Processes.names))
