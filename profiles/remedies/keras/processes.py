"""Batches made by Keras' worker processes; not where these, which are forks, would all draw the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from unstall import forks
from unstall.profiles.random_states import random_states_put_back
from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.equality import compare
from unstall.profiles.remedies.keras.dataset_settings import with_settings
from unstall.profiles.remedies.keras.keras_workers import KerasWorkers
from unstall.profiles.remedies.remedy import Untried

if TYPE_CHECKING:
    from unstall.profiles.remedies.keras.py_dataset import DatasetPlan, PyDatasetData


class Processes(Change["PyDatasetData", "DatasetPlan"]):
    """As many worker processes as there are cores, instead of threads or of fewer processes."""

    names = ("processes",)
    serves = ("waiting", "interference")

    def find(self, data: PyDatasetData) -> Iterator[Offer[DatasetPlan] | Untried]:
        import keras

        if data.dataset.use_multiprocessing and int(data.dataset.workers or 1) >= data.calls:
            return
        if forks_draw_alike(data.dataset):
            reason = "its batches draw random numbers, and Keras' workers, which are forks, would draw alike"
            yield Untried(name="processes", reason=reason)
            return
        yield with_settings(
            data,
            "processes",
            {"workers": data.calls, "use_multiprocessing": True, "max_queue_size": data.queue},
            kind="processes",
            first_lines=(forks.LINE,) if keras.backend.backend() == "tensorflow" else (),
            conflicts=KerasWorkers.names,
        )


def forks_draw_alike(dataset: Any) -> bool:
    """Whether a batch depends on what forks have in common: the random states of Python and NumPy, or a counter.

    Keras' old generators count their batches, and add that to their seed.
    """
    import keras

    seen = getattr(dataset, "total_batches_seen", None)
    readings = []
    try:
        with random_states_put_back():
            for seed in (1, 1, 2):
                random.seed(seed)
                np.random.seed(seed)
                readings.append([np.array(leaf) for leaf in keras.tree.flatten(dataset[0])])
    except Exception:  # code of the user's, which shows its error where the data are read
        return False
    finally:
        if seen is not None:
            dataset.total_batches_seen = seen
    again, drawn = (compare([readings[0]], [reading]).effect for reading in readings[1:])
    return drawn != "identical" if again == "identical" else seen is not None
