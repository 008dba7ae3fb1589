"""Watches a loop over data of any kind, in a script or a notebook."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from unstall.profiles import script
from unstall.profiles.data import ANY
from unstall.profiles.report.measurements import MeasurementDocument
from unstall.profiles.report.notebook import Shown
from unstall.profiles.script.drawing import Batches
from unstall.profiles.script.loops import Loops
from unstall.profiles.script.report import report_on

Batch = TypeVar("Batch")


class Watched(Shown, Generic[Batch]):
    """Data whose loops are watched: each pass is an epoch, each batch a step. Print it, or let a notebook show it.

    What the loop does between two batches is the script's own code, so that the rate of the model alone is not known.
    On JAX, which computes behind the host, waiting counts from when the device had finished the step before.
    """

    __slots__ = ("_data", "_loops", "_name")

    def __init__(self, data: Iterable[Batch], loops: Loops, name: str) -> None:
        self._data = data
        self._loops = loops
        self._name = name

    def __iter__(self) -> Iterator[Batch]:
        place = self._loops.place_of(sys._getframe(1))
        if place is None:
            return iter(self._data)
        watched = self._loops.begin(ANY, self._data, place)
        return Batches(watched, lambda: iter(self._data))

    def __len__(self) -> int:
        return len(self._data)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # `copy` asks for attributes of an object before the object has any
            raise AttributeError(name)
        return getattr(self._data, name)

    @property
    def document(self) -> MeasurementDocument:
        """What was measured so far; a pass that runs is not a part of it."""
        return report_on([self._loops], script=self._name)

    def _shown(self) -> MeasurementDocument:
        return self.document


def watch(data: Iterable[Batch], *, name: str = "data") -> Watched[Batch]:
    """Returns the data, to be looped over in their place: how long each batch is waited for, and how long a step takes.

        for batch in (watched := profiles.watch(data)):
            train(batch)
        print(watched)

    Under `unstall profile` the loop has a row in the report of the script.

    Args:
      data: any iterable of batches. The first array of a batch has an image or sample in each of its rows.
      name: of the data, in the report.
    """
    return Watched(data, script.loops_of_run() if script.loops_of_run is not None else Loops(max_steps=None), name)
