"""The data of Grain: a `DataLoader`, a `MapDataset`, an `IterDataset`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from unstall.profiles.data.base import Adapter
from unstall.profiles.data.kinds import DataKind
from unstall.profiles.data.numbers import Numbers

if TYPE_CHECKING:
    from unstall.profiles.script.loops import Loops


class GrainData(Adapter):
    """Data of Grain."""

    module = "grain"

    def __init__(self) -> None:
        self._numbers = Numbers()

    def owns(self, data: Any) -> bool:
        return isinstance(data, _classes())

    def kind(self, data: Any) -> DataKind:
        return DataKind.GRAIN

    def label(self, data: Any) -> str:
        return "a Grain DataLoader" if isinstance(data, sys.modules["grain"].DataLoader) else "a Grain dataset"

    def identity(self, data: Any) -> Hashable:
        return type(data).__name__, self._numbers.of(data)

    def attach(self, loops: Loops) -> Callable[[], None]:
        """Replaces `__iter__` of all such data, so that `loops` is told of each pass. Returns what restores it."""
        from unstall.profiles.script.class_methods import Inside, replace_methods
        from unstall.profiles.script.drawing import told
        from unstall.profiles.stages.places import is_library

        inside = Inside()

        def watched(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def __iter__(data: Any) -> Any:
                place = None if inside.runs else loops.place_of(sys._getframe(1))
                if place is None or is_library(place.file):  # a thread of Grain's
                    return original(data)
                pass_ = loops.begin(self, data, place)
                inside.runs = True  # an iterator makes those of the data behind it
                try:
                    iterator = original(data)
                finally:
                    inside.runs = False
                return told(iterator, pass_)

            return __iter__

        undo = ExitStack()
        for owner in _classes():
            undo.callback(replace_methods(owner, ["__iter__"], watched))
        return undo.close


def _classes() -> tuple[type, ...]:
    """Returns the classes of Grain's data; none where Grain is not imported, or the module is another of that name."""
    grain = sys.modules.get("grain")
    if grain is None or not hasattr(grain, "IterDataset"):
        return ()
    return grain.DataLoader, grain.MapDataset, grain.IterDataset
