"""The attributes of a data set, and of the data sets inside it: whether something changes them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from typing import Any

# A data set may be made of others, so deep, and of so many.
_DEPTH, _MOST_PARTS = 4, 100
# So many values of a list, a dict or an array are looked at.
_MOST_VALUES = 100
# What is compared by its value: a new object may have the same.
_PLAIN = (bool, int, float, str, bytes, tuple, frozenset)


def made_of(data: Any) -> list[Any]:
    """Returns some data and the data sets inside them, as a `Subset` holds another, or a `ConcatDataset` several."""
    parts, last = [data], [data]
    for _ in range(_DEPTH):
        inner = [own_attributes(one).get("dataset") for one in last]
        several = [own_attributes(one).get("datasets") for one in last]
        inner += [part for some in several if isinstance(some, (list, tuple)) for part in some[:_MOST_PARTS]]
        last = [one for one in inner if one is not None]
        parts += last
    return parts


def attributes_of(data: Any) -> Mapping[tuple[int, str], int]:
    """Returns a number for each attribute of some data that differs once the attribute changes.

    Not where a value changes that is not looked at: of a list, a dict or an array some are, of other objects none.
    What is None is left out: it may be opened when the data are read first.

    Returns:
      The numbers, by (the number of the part that the data are made of, the attribute's name).
    """
    return {
        (number, name): _state(value)
        for number, one in enumerate(made_of(data))
        for name, value in dict(own_attributes(one)).items()
        if value is not None
    }


def own_attributes(data: Any) -> Mapping[str, Any]:
    """Returns the attributes that an object holds itself: to read them runs no code of the user's."""
    return getattr(data, "__dict__", {})


def _state(value: Any) -> int:
    # Exact types: a class of the user's may have a `__len__` or `__hash__` of its own.
    kind = type(value)
    if kind in _PLAIN:
        try:
            return hash(value)
        except TypeError:  # a tuple of lists
            return id(value)
    if kind is list:
        return hash((len(value), *map(id, value[:: len(value) // _MOST_VALUES + 1])))
    if kind in (dict, set):
        items = value.items() if kind is dict else value
        return hash((len(value), *(_id(item) for item in itertools.islice(items, _MOST_VALUES))))
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and kind is numpy.ndarray and value.dtype != object:
        return hash((id(value), value.flat[:: value.size // _MOST_VALUES + 1].tobytes()))
    is_tensor = torch is not None and kind is getattr(torch, "Tensor", None)
    if is_tensor and value.device.type == "cpu" and value.is_contiguous():
        return hash((id(value), *value.detach().view(-1)[:: value.numel() // _MOST_VALUES + 1].tolist()))
    return id(value)


def _id(item: Any) -> Any:
    return tuple(map(id, item)) if type(item) is tuple else id(item)
