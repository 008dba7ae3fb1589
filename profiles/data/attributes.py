"""The attributes of data sets, and of those that they are made of: whether something changes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# A data set may be made of others, so deep, and of so many.
_DEPTH, _MOST_PARTS = 4, 100

# Which object an attribute is, and how large it is where that can change.
State = tuple[int, int]


def made_of(data: Any) -> list[Any]:
    """Returns some data and the data sets that they are made of, as a `Subset` is of another, or a `ConcatDataset`."""
    parts, last = [data], [data]
    for _ in range(_DEPTH):
        inner = [own_attributes(one).get("dataset") for one in last]
        several = [own_attributes(one).get("datasets") for one in last]
        inner += [part for some in several if isinstance(some, (list, tuple)) for part in some[:_MOST_PARTS]]
        last = [one for one in inner if one is not None]
        parts += last
    return parts


def attributes_of(data: Any) -> Mapping[tuple[int, str], State]:
    """Returns what tells whether the attributes of some data change, by (the part of the data, the name).

    What is None is left out: it may be opened when it is read first.
    """
    return {
        (number, name): (id(value), len(value) if isinstance(value, (list, dict, set)) else 0)
        for number, one in enumerate(made_of(data))
        for name, value in own_attributes(one).items()
        if value is not None
    }


def own_attributes(data: Any) -> Mapping[str, Any]:
    """Returns the attributes that an object holds itself: to read them runs no code of the user's."""
    return getattr(data, "__dict__", {})
