"""Imports what a text names: of our own code, or of the user's."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from unstall.forks import not_collecting
from unstall.home import HOME

_OURS = frozenset({"pipeline", "models", "profiles", "benchmarks"})


def of_ours(text: str) -> Any:
    """Imports an object that our own code names by a text, such as the class that answers in a child process.

    Args:
      text: "module:name"; a module of ours stands without the `unstall` before it, any other as it is.
    """
    module, _, name = text.partition(":")
    ours = module.partition(".")[0] in _OURS
    with not_collecting():  # an import makes little garbage: the search takes a quarter of the time of TensorFlow's
        imported = importlib.import_module(f"unstall.{module}" if ours else module)
    return getattr(imported, name)


def of_users(text: str) -> Any:
    """Imports a function that the user names at the command line, from the current folder or the path; never ours.

    Args:
      text: "module:function".
    Raises:
      ImportError: if there is no such module, or only one of ours.
    """
    module, _, name = text.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the current folder: `python -m` puts it on the path, an installed script does not
    first = module.partition(".")[0]
    if first in _OURS and _lies_in_home(first):
        raise ImportError(f"there is no {first} here but unstall's own")
    return getattr(importlib.import_module(module), name)


def _lies_in_home(name: str) -> bool:
    """Whether the name of a package would be found in a checkout of ours, on the path."""
    spec = importlib.util.find_spec(name)
    places = [] if spec is None else [*(spec.submodule_search_locations or [spec.origin or ""])]
    return any(Path(place).resolve() == HOME / name for place in places)
