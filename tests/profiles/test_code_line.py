"""A line of code: it is printed as the user knows it, and compared without folders."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from unstall.profiles.code_line import CodeLine, line_of, named
from unstall.profiles.stages.places import Place

HERE = CodeLine(file="/home/me/train.py", line=7)


def test_a_line_is_that_of_its_frame_and_is_printed_without_folders() -> None:
    frame = sys._getframe()
    place = line_of(frame)
    assert (Path(place.file), place.line) == (Path(__file__), frame.f_lineno - 1)
    assert str(place) == f"test_code_line.py:{place.line}"
    assert HERE.without_folders == CodeLine(file="train.py", line=7) and str(HERE.without_folders) == "train.py:7"


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (HERE, True),
        (CodeLine(file="train.py", line=7), True),
        (Place(file="/home/you/train.py", line=7, end_line=8, end_column=1), True),
        (CodeLine(file="train.py", line=8), False),
        (CodeLine(file="/home/me/data.py", line=7), False),
    ],
)
def test_lines_of_a_file_are_the_same_in_whatever_folder_it_lies(other: CodeLine, same: bool) -> None:
    assert HERE.is_at(other) is same and other.is_at(HERE) is same


def test_a_file_is_known_by_its_name_and_a_cell_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named("/home/me/train.py") == "train.py"
    cells = {"/tmp/ipykernel_7/123.py": ("Cell", "In[3]")}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=cells.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert named("/tmp/ipykernel_7/123.py") == "In[3]" and named("/home/me/train.py") == "train.py"
    assert str(Place(file="/tmp/ipykernel_7/123.py", line=5, end_line=5, end_column=9)) == "In[3]:5"
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(compile=None)))
    assert named("/tmp/ipykernel_7/123.py") == "123.py"
