"""Notes whether a script makes its data anew for each epoch or call, or changes them in between."""

from __future__ import annotations

from typing import Any

from unstall.profiles.data.attributes import attributes_of, own_attributes
from unstall.profiles.data.numbers import reference_to


class LastData:
    """The data that a place of a script used last. They are not kept alive.

    Attributes:
      anew: whether the place has used other data than those before.
      changed: an attribute of the data set that had another value in a later epoch or call; None where none had.
    """

    def __init__(self, data: Any) -> None:
        self.anew = False
        self.changed: str | None = None
        self._reference = reference_to(data)
        self._noted = _noted(data)

    def note(self, data: Any) -> None:
        """Notes the data of another epoch or call."""
        self.anew = self.anew or (self._reference is not None and self._reference() is not data)
        self._reference = reference_to(data)
        (number, before), self._noted = self._noted, _noted(data)
        if self._noted[0] == number and not self.anew:
            now = self._noted[1]
            changed = sorted(name for (part, name), state in before.items() if now.get((part, name), state) != state)
            self.changed = self.changed or next(iter(changed), None)


def _noted(data: Any) -> tuple[int, Any]:
    """Returns which data set it is, behind a loader of it, and its attributes."""
    data = own_attributes(data).get("dataset", data)
    return id(data), attributes_of(data)
