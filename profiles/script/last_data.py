"""Notes whether a script makes its data anew for each epoch or call, and tells data apart that are there together."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class LastData:
    """The data that a place of a script used last. They are not kept alive.

    Attributes:
      anew: whether the place has used other data than those before.
    """

    def __init__(self, data: Any) -> None:
        self.anew = False
        self._reference = reference_to(data)

    def note(self, data: Any) -> None:
        """Notes the data of another epoch or call."""
        self.anew = self.anew or (self._reference is not None and self._reference() is not data)
        self._reference = reference_to(data)


class Numbers:
    """Gives data numbers: all data that are there at the same time have different ones.

    Data that a script makes anew for each epoch get the number of those before, which are gone by then.
    """

    def __init__(self) -> None:
        self._references: list[Callable[[], Any]] = []

    def of(self, data: Any) -> int:
        """Returns the number of data; of all to which no weak reference is possible, the next free one."""
        there = [reference() for reference in self._references]
        for number, other in enumerate(there):
            if other is data:
                return number
        free = next((number for number, other in enumerate(there) if other is None), len(there))
        self._references[free : free + 1] = [reference_to(data) or (lambda: None)]
        return free


def reference_to(data: Any) -> Callable[[], Any] | None:
    """Returns a weak reference to data; None where there can be none, as to a list of arrays."""
    try:
        return weakref.ref(data)
    except TypeError:
        return None
