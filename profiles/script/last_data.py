"""Notes whether a script makes its data anew for each epoch or call."""

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


def reference_to(data: Any) -> Callable[[], Any] | None:
    """Returns a weak reference to data; None where there can be none, as to a list of arrays."""
    try:
        return weakref.ref(data)
    except TypeError:
        return None
