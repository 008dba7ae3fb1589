"""The place in a user's code of the call that made an object."""

from __future__ import annotations

import inspect
from pathlib import Path

from unstall.profiles.stages.places import note_places, place_of


class Loader:
    def __init__(self, data: list[int], batch_size: int = 1) -> None:
        self.data, self.batch_size = data, batch_size


def test_a_class_whose_places_are_noted_keeps_its_signature() -> None:
    before = inspect.signature(Loader.__init__)
    end_notes = note_places(Loader)
    assert inspect.signature(Loader.__init__) == before
    loader = Loader([1], batch_size=2)
    end_notes()
    assert (loader.data, loader.batch_size) == ([1], 2)
    place = place_of(loader)
    assert place is not None and Path(place.file) == Path(__file__)
    assert place_of(Loader([1])) is None
