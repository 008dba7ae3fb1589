"""Watches loops of a script's own over the data of Grain: a `DataLoader`, a `MapDataset`, an `IterDataset`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from typing import Any

import grain

from unstall.profiles.script.class_methods import Inside, replace_methods
from unstall.profiles.script.last_data import Numbers
from unstall.profiles.script.loop_sources import AnyData, told
from unstall.profiles.script.loops import Loops
from unstall.profiles.stages.places import is_library


class GrainData(AnyData):
    """Loops over the data of Grain."""

    def __init__(self) -> None:
        self._inside = Inside()
        self._numbers = Numbers()

    def attach(self, loops: Loops) -> Callable[[], None]:
        """Replaces `__iter__` of all such data, so that `loops` is told of each pass. Returns what restores it."""
        undo = ExitStack()
        for owner in (grain.DataLoader, grain.MapDataset, grain.IterDataset):
            undo.callback(replace_methods(owner, ["__iter__"], functools.partial(self._watched, loops)))
        return undo.close

    def kind_of(self, data: Any) -> str:
        return "a Grain DataLoader" if isinstance(data, grain.DataLoader) else "a Grain dataset"

    def identity_of(self, data: Any) -> Hashable:
        return type(data).__name__, self._numbers.of(data)

    def _watched(self, loops: Loops, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __iter__(data: Any) -> Any:
            place = None if self._inside.runs else loops.place_of(sys._getframe(1))
            if place is None or is_library(place.rpartition(":")[0]):  # a thread of Grain's
                return original(data)
            watched = loops.begin(self, data, place)
            self._inside.runs = True  # an iterator makes those of the data behind it
            try:
                iterator = original(data)
            finally:
                self._inside.runs = False
            return told(iterator, watched)

        return __iter__
