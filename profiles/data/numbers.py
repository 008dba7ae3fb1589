"""Tells data apart that are there at the same time, without keeping them alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


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
