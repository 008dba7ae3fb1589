"""Finds the call in a user's code that made an object, such as a dataset of tf.data."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import unstall
from unstall.profiles.code_line import CodeLine
from unstall.profiles.data.numbers import reference_to

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_LIBRARIES = ("site-packages", "dist-packages")
# How the names of cells begin that lie in no file: of IPython in a terminal, of Databricks.
_CELLS = ("<ipython-input", "<command-")
# These may be installed in any folder, such as one that PYTHONPATH names.
_FRAMEWORKS = ("tensorflow", "keras", "torch", "torchvision", "jax", "grain", "numpy")
_OURS = str(unstall.HOME / "profiles")
# Of so many data sets that one call is given no more are noted.
_MOST_GIVEN = 10
# The attributes of an object that hold the place of its call, and which data sets that call was given so far.
_NOTED, _GIVEN = "_unstall_place", "_unstall_given"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(CodeLine):
    """A call in a file of the user's, at the line that Python names for it.

    Attributes:
      called: the name of the function that is called; empty where it is not known.
      end_line, end_column: where the call ends; lines count from 1, columns from 0, in bytes of UTF-8.
    """

    end_line: int
    end_column: int
    called: str = ""


def is_library(file: str) -> bool:
    """Whether a file is of Python or of an installed package, and not of the user's: a file, or a notebook's cell."""
    if file.startswith(_CELLS):
        return False
    parents = Path(file).parts
    return file.startswith((_STANDARD_LIBRARY, "<", *_frameworks())) or any(part in _LIBRARIES for part in parents)


def is_users(file: str) -> bool:
    """Whether a file is of the user's own code: of no library, and not of this package."""
    return not is_library(file) and not file.startswith(_OURS)


def _frameworks() -> list[str]:
    """Returns the folders of the frameworks that this process has imported."""
    modules = (sys.modules.get(name) for name in _FRAMEWORKS)
    return [f"{folder}{os.sep}" for module in modules for folder in getattr(module, "__path__", ())]


def users_call(frame: FrameType | None) -> Place | None:
    """Returns the innermost call of the user's own code in a stack of frames; None where there is none."""
    called = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file):
            position = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
            if position is None or position[1] is None or position[3] is None:
                return None
            return Place(file=file, line=frame.f_lineno, end_line=position[1], end_column=position[3], called=called)
        called, frame = frame.f_code.co_name, frame.f_back
    return None


def note_places(owner: type) -> Callable[[], None]:
    """Notes for each object of a class from now on which call of the user's made it; `place_of` returns it.

    Returns what ends that.
    """
    original = owner.__init__  # type: ignore[misc]
    given: dict[Place | None, list[Callable[[], Any] | None]] = {}

    @functools.wraps(original)  # libraries read the parameters of a class by `inspect.signature`
    def __init__(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        if getattr(self, _NOTED, None) is None:
            # Not `setattr`: TensorFlow's objects track what is set on them.
            place = users_call(sys._getframe(1))
            object.__setattr__(self, _NOTED, place)
            if hasattr(self, "dataset"):
                data_sets = given.setdefault(place, [])
                object.__setattr__(self, _GIVEN, data_sets)
                known = any(other is not None and other() is self.dataset for other in data_sets)
                if not known and len(data_sets) < _MOST_GIVEN:
                    data_sets.append(reference_to(self.dataset))

    owner.__init__ = __init__  # type: ignore[misc]
    return lambda: setattr(owner, "__init__", original)


def note_as(made: Any, other: Any) -> None:
    """Notes for an object the call that made another, in whose place it is used."""
    object.__setattr__(made, _NOTED, place_of(other))


def data_sets_at(made: Any) -> list[Any] | None:
    """Returns all data sets that the call which made a loader was given while the script ran.

    None where one of several is gone, or there were too many.
    """
    given = getattr(made, _GIVEN, ())
    if len(given) < 2:
        return [made.dataset]
    there = [None if other is None else other() for other in given]
    return None if any(one is None for one in there) or len(there) == _MOST_GIVEN else there


def place_of(made: Any) -> Place | None:
    """Returns the call that made an object; None where it was not noted."""
    return getattr(made, _NOTED, None)
