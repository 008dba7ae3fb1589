"""Notes whether a script makes its data again for each epoch or call, or changes them in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unstall.profiles.data import adapter
from unstall.profiles.data.attributes import attributes_of
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
        self._attributes = _attributes_of(data)

    def note(self, data: Any) -> None:
        """Notes the data of another epoch or call."""
        self.anew = self.anew or (self._reference is not None and self._reference() is not data)
        self._reference = reference_to(data)
        before, self._attributes = self._attributes, _attributes_of(data)
        if not self.anew and self.changed is None:
            now = self._attributes
            self.changed = next(
                (name for (part, name), state in before.items() if now.get((part, name), state) != state), None
            )


def _attributes_of(data: Any) -> Mapping[tuple[int, str], int]:
    """Returns what tells whether the attributes of the data set change; nothing where these cannot be read."""
    try:
        return attributes_of(adapter(data).data_set(data))
    except Exception:  # another thread may change them meanwhile, and nothing here may end the script
        return {}
