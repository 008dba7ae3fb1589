"""Notes whether a script makes its data anew for each epoch or call."""

from __future__ import annotations

from typing import Any

from unstall.profiles.data.numbers import reference_to


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
