"""The place in a user's code of the call that made an object."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from unstall.profiles.stages.places import Place, named, note_places, place_of


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


def test_a_file_is_known_by_its_name_and_a_cell_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named("/home/me/train.py") == "train.py"
    cells = {"/tmp/ipykernel_7/123.py": ("Cell", "In[3]")}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=cells.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert named("/tmp/ipykernel_7/123.py") == "In[3]" and named("/home/me/train.py") == "train.py"
    assert str(Place(file="/tmp/ipykernel_7/123.py", line=5, end_line=5, end_column=9)) == "In[3]:5"
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(compile=None)))
    assert named("/tmp/ipykernel_7/123.py") == "123.py"
