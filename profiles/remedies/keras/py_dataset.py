"""A PyDataset, or one of Keras' old generators, which can be given to `fit` again with remedies."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.dummy
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from unstall import forks
from unstall.profiles.data.keras import PyDatasets, has_workers
from unstall.profiles.measure.batches import batch_images
from unstall.profiles.remedies.change import Change
from unstall.profiles.remedies.data import Data, Failed
from unstall.profiles.remedies.offers import Offers
from unstall.profiles.remedies.remedy import TUNER, Need
from unstall.profiles.remedies.room import Room
from unstall.profiles.stages.places import Place

# Batches that are compared.
_COMPARED_BATCHES = 4
# Batches that lie ready in the queue for each worker.
_QUEUE_PER_WORKER = 4
# Workers that give no batch for so long never will.
_BATCH_LIMIT_S = 30.0
# Settings of a PyDataset, which are attributes of it.
_SETTINGS = ("workers", "use_multiprocessing", "max_queue_size")


@dataclass(slots=True, kw_only=True)
class DatasetPlan:
    """What a PyDataset is built from. A remedy may replace any of it.

    Attributes:
      dataset: gives the batches, by their indices.
      settings: `workers`, `use_multiprocessing` and `max_queue_size`.
      batches: of an epoch; None for whole epochs, whose length may change where that of the dataset does.
    """

    dataset: Any
    settings: dict[str, Any]
    batches: int | None


class PyDatasetData(Data):
    """A PyDataset, or one of Keras' old generators.

    Args:
      dataset: what was given to `fit`.
      changes: that may be offered, such as `PY_DATASET_REMEDIES`.
      needs: what it loses, the most first, which calls for remedies.
      room: what the remedies may take.
      place: the call of `fit`; None where it is not known.
      name: the variable that holds the dataset in the code of that call; None where it is not known.
      has_epochs: whether that call trains for several epochs.
      unkept: why nothing of one epoch may be kept for the next; None where it may.
      only: the remedies that are looked for; all unless given.

    Attributes:
      dataset, needs, room, place, name, has_epochs, unkept: as given.
      calls: how many calls at once the cores can take, at least 2.
      queue: how many batches may lie ready, where there are as many workers as calls.

    Raises:
      Failed: if the dataset has no end, or no batch.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        changes: Sequence[Change[PyDatasetData, DatasetPlan]],
        needs: Collection[Need],
        room: Room,
        place: Place | None = None,
        name: str | None = None,
        has_epochs: bool = False,
        unkept: str | None = None,
        only: Sequence[str] = (),
    ) -> None:
        super().__init__()
        if dataset.num_batches is None:
            raise Failed("the data have no end")
        if not dataset.num_batches:
            raise Failed("the data have no batch")
        self.dataset, self.needs, self.place, self.name = dataset, frozenset(needs), place, name
        self.room, self.has_epochs, self.unkept, self.calls = room, has_epochs, unkept, max(2, room.calls)
        self.queue = max(int(dataset.max_queue_size), _QUEUE_PER_WORKER * self.calls)
        is_tuned = keras.backend.backend() == "tensorflow" and not has_workers(dataset)
        self.edges_by = TUNER if is_tuned else None
        self._number = int(dataset.num_batches)
        self.epoch_batches = float(self._number)
        self.epoch_images = float(self._number * batch_images(dataset[0]))
        self._offers = Offers(changes, self, needs, only=only)
        self.remedies, self.untried = self._offers.remedies, self._offers.untried

    def fits(self, names: Sequence[str]) -> bool:
        return self._offers.fits(names)

    def ahead(self, names: Sequence[str]) -> int:
        """Returns how many batches the queue holds with these remedies; none without workers."""
        return PyDatasets().ahead(self.built(names, 1)).buffered_batches

    def built(self, names: Sequence[str], batches: float) -> Any:
        return _Part(self._plan(names, batches))

    def _plan(self, names: Sequence[str], batches: float) -> DatasetPlan:
        settings = {name: getattr(self.dataset, name) for name in _SETTINGS}
        part = None if math.isinf(batches) else min(int(batches), self._number)
        plan = DatasetPlan(dataset=self.dataset, settings=settings, batches=part)
        self._offers.change(plan, names)
        return plan

    def _first_batches(self, names: Sequence[str]) -> list[Any]:
        """Returns the first batches: as workers make them, or as this thread makes them without remedies."""
        plan = self._plan(names, _COMPARED_BATCHES)
        part = _Part(plan)
        if not names:
            return [part[index] for index in range(part.num_batches)]
        workers = int(plan.settings["workers"] or 1)
        return _made_by_workers(part, workers, processes=plan.settings["use_multiprocessing"])


class _Part(keras.utils.PyDataset):
    """The first batches of a PyDataset, or all of each epoch's, with settings of its own."""

    def __init__(self, plan: DatasetPlan) -> None:
        super().__init__(**plan.settings)
        self._data = plan.dataset
        self._batches = plan.batches

    def __len__(self) -> int:
        return int(self._data.num_batches) if self._batches is None else self._batches

    def __getitem__(self, index: int) -> Any:
        return self._data[index]

    def on_epoch_begin(self) -> None:
        if hasattr(self._data, "on_epoch_begin"):
            self._data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._data.on_epoch_end()


# The data whose batches a pool makes: workers that are forked find them here, as Keras' own workers find theirs.
_shared: list[Any] = []


def _shared_batch(index: int) -> Any:
    return _shared[0][index]


def _made_by_workers(data: Any, workers: int, *, processes: bool) -> list[Any]:
    """Returns the batches of a PyDataset as workers make them side by side.

    Raises:
      Failed: if they do not come in time.
    """
    _shared[:] = [data]
    pool_class = multiprocessing.get_context("fork").Pool if processes else multiprocessing.dummy.Pool
    with forks.not_collecting():
        pool = pool_class(workers)
    try:
        batches = pool.imap(_shared_batch, range(data.num_batches))
        return [batches.next(timeout=_BATCH_LIMIT_S) for _ in range(data.num_batches)]
    except multiprocessing.TimeoutError as error:
        raise Failed(f"its workers gave no batch within {_BATCH_LIMIT_S:g} s") from error
    finally:
        pool.terminate()
        _shared.clear()
