"""Names of a package that are imported when they are asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def names_of(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Returns the `__getattr__` of a package, so that importing it does not import what most of its users do without.

    Args:
      package: its `__name__`.
      homes: for each name the module below the package that has it.
    """

    def find(name: str) -> object:
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
