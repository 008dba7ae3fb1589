"""Keras' own data: a PyDataset, or a generator of the old `ImageDataGenerator`, which is one."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unstall import forks
from unstall.profiles.data.base import Adapter, StageReading, Use, as_tuple
from unstall.profiles.data.kinds import DataKind
from unstall.profiles.data.numbers import Numbers

if TYPE_CHECKING:
    from unstall.profiles.measure.ahead import Ahead
    from unstall.profiles.remedies.data import Data
    from unstall.profiles.remedies.remedy import Need
    from unstall.profiles.remedies.room import Room
    from unstall.profiles.script.loops import Loops
    from unstall.profiles.stage_table import StageTable
    from unstall.profiles.stages.places import Place


class PyDatasets(Adapter):
    """A PyDataset. Keras makes its batches in workers of its own, in `fit` alone."""

    module = "keras"
    fits = True
    reads_again = True

    def __init__(self) -> None:
        self._numbers = Numbers()

    def owns(self, data: Any) -> bool:
        return is_py_dataset(data)

    def kind(self, data: Any) -> DataKind:
        return DataKind.IMAGE_ITERATOR if _is_image_iterator(data) else DataKind.PY_DATASET

    def label(self, data: Any) -> str:
        if _is_image_iterator(data):
            return "an ImageDataGenerator iterator"
        return f"a PyDataset ({type(data).__name__})"

    def identity(self, data: Any) -> Hashable:
        return type(data).__name__, self._numbers.of(data)

    def workers_in_fit(self, data: Any) -> int:
        return max(int(getattr(data, "workers", 1) or 1), 1)

    def facts_of_workers(self, data: Any) -> Mapping[str, Any]:
        import keras

        processes = bool(data.use_multiprocessing and data.workers)
        facts: dict[str, Any] = {"workers_asked": data.workers, "worker_processes": processes}
        if processes and multiprocessing.get_start_method() == "fork" and keras.backend.backend() == "tensorflow":
            with suppress(OSError):  # no memory or process is left: it is not known
                facts["forks_collect"] = forks.collect_garbage()
        return facts

    def check_read_again(self, data: Any) -> None:  # Keras' old generators have `__next__`, and can be read again
        if data.num_batches is None:
            raise ValueError("The data must be finite. Received: a PyDataset whose `num_batches` is None.")

    def by_hand(self, data: Any) -> Iterator[Any]:
        # By index: iterating over Keras' old generators never ends.
        batches = (data[index] for index in range(data.num_batches))
        return (batch if isinstance(batch, dict) else as_tuple(batch) for batch in batches)

    def ahead(self, data: Any) -> Ahead:
        from unstall.profiles.measure.ahead import Ahead

        queue = int(data.max_queue_size) if has_workers(data) else 0
        return Ahead(parallel_batches=self.workers_in_fit(data), buffered_batches=queue)

    def stage_table(self, data: Any, reading: StageReading) -> StageTable:
        from unstall.profiles.stages.python_stages import python_table

        windows = reading.windows()
        return python_table(data, windows, cores=reading.cores, files=reading.files, note=reading.note)

    def wrapped(self, data: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[Any]:
        make = wrap(data.__getitem__)
        return map(make, range(data.num_batches))

    def rebuilt(
        self, data: Any, use: Use, needs: Sequence[Need], *, room: Room | None = None, only: Sequence[str] = ()
    ) -> Data:
        from unstall.profiles.remedies.keras import PY_DATASET_REMEDIES
        from unstall.profiles.remedies.keras.py_dataset import PyDatasetData
        from unstall.profiles.remedies.room import room_here

        return PyDatasetData(
            data,
            changes=PY_DATASET_REMEDIES,
            needs=needs,
            room=room or room_here(),
            place=use.place,
            name=use.name or _variable(use.place),
            has_epochs=use.has_epochs,
            unkept=use.unkept if use.changed else None,  # each `fit` may keep batches for its own epochs
            only=only,
        )

    def attach(self, loops: Loops) -> Callable[[], None]:
        """Replaces the methods of all such data that give batches, so that `loops` is told. Returns what restores."""
        if not hasattr(sys.modules["keras"], "Model"):  # another package of that name
            return lambda: None
        from unstall.profiles.script.indexed import watch_indexed

        return watch_indexed(self, sys.modules["keras"].utils.PyDataset, loops)


def is_py_dataset(data: Any) -> bool:
    """Whether data are a PyDataset of Keras', which is not imported to find out."""
    base = getattr(getattr(sys.modules.get("keras"), "utils", None), "PyDataset", None)
    return base is not None and isinstance(data, base)


def has_workers(data: Any) -> bool:
    """Whether Keras makes the batches of a PyDataset in workers of its own, and switches tf.data's tuner off."""
    return int(getattr(data, "workers", 1) or 1) > 1 or bool(data.use_multiprocessing)


def _is_image_iterator(data: Any) -> bool:
    parents = type(data).__mro__
    return any(
        parent.__module__.endswith("preprocessing.image") and parent.__name__ == "Iterator" for parent in parents
    )


def _variable(place: Place | None) -> str | None:
    """Returns the variable that holds the data, if the first argument of a call of `fit` is one."""
    from unstall.profiles.remedies.edits import source_of, variable_given

    if place is None:
        return None
    with suppress(OSError, UnicodeDecodeError):
        return variable_given(source_of(Path(place.file)), place, "x")
    return None
