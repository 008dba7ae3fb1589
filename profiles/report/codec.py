"""Turns frozen dataclasses into values that JSON can hold, and back: strictly, by the annotations of their fields."""

from __future__ import annotations

import contextlib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from enum import Enum, EnumType
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


class DecodeError(ValueError):
    """A value that the annotation of its field does not allow; the message says where it stands."""


def encode(value: Any) -> Any:
    """Returns dataclasses as objects, tuples as lists, and everything else as it is.

    A field has its own name in the file, or that of the "key" in its metadata.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {_key(field): encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def decode(kind: type[T], value: Any, where: str = "") -> T:
    """Turns a value of JSON, as `encode` returned it, back into a value of a type.

    Args:
      kind: the type, as in the annotation of a field.
      value: as JSON holds it.
      where: the place of the value in the file, for messages.
    Raises:
      DecodeError: if the value is not of that type, lacks a field that has no default, or has a field too many.
    """
    return typing.cast("T", _decode(kind, value, where))


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _of_union(arguments, value, where)
    if origin is typing.Literal:
        _check(value in arguments, " or ".join(map(repr, arguments)), value, where)
        return value
    if is_dataclass(kind):
        return _object(kind, value, where)
    if isinstance(kind, EnumType):
        members: list[Enum] = list(kind)
        values = [member.value for member in members]
        _check(value in values, " or ".join(map(repr, values)), value, where)
        return kind(value)
    if origin is tuple:
        _check(isinstance(value, list), "a list", value, where)
        return _tuple(arguments, value, where)
    if origin is list:
        _check(isinstance(value, list), "a list", value, where)
        return list(_tuple((*arguments, ...), value, where))
    if origin in (dict, Mapping):
        _check(isinstance(value, dict), "an object", value, where)
        return {key: _decode(arguments[1], item, f"{where}[{key!r}]") for key, item in value.items()}
    expected = (int, float) if kind is float else kind
    # Python counts a bool as an int; in a file, true where a number belongs is an error.
    _check(isinstance(value, expected) and (kind is bool or not isinstance(value, bool)), kind.__name__, value, where)
    return value


def _of_union(kinds: Sequence[Any], value: Any, where: str) -> Any:
    """Decodes None as None, and any other value as the first of the other types that allows it."""
    if value is None and types.NoneType in kinds:
        return None
    others = [kind for kind in kinds if kind is not types.NoneType]
    for kind in others[:-1]:
        with contextlib.suppress(DecodeError):
            return _decode(kind, value, where)
    return _decode(others[-1], value, where)


def _tuple(kinds: Sequence[Any], values: list[Any], where: str) -> tuple[Any, ...]:
    if kinds[1:] == (...,):
        return tuple(_decode(kinds[0], item, f"{where}[{at}]") for at, item in enumerate(values))
    _check(len(values) == len(kinds), f"a list of {len(kinds)}", values, where)
    return tuple(
        _decode(kind, item, f"{where}[{at}]") for at, (kind, item) in enumerate(zip(kinds, values, strict=True))
    )


def _object(kind: Any, value: Any, where: str) -> Any:
    _check(isinstance(value, dict), "an object", value, where)
    hints = _hints(kind)
    if unknown := sorted(value.keys() - hints.keys()):
        raise DecodeError(f"{where or 'the file'} has no field {unknown[0]!r}.")
    try:
        return kind(**{hints[key][0]: _decode(hints[key][1], item, f"{where}.{key}") for key, item in value.items()})
    except DecodeError:
        raise
    except (TypeError, ValueError, OverflowError) as error:  # a field is missing, or the class refuses a value
        raise DecodeError(f"{where or 'the file'}: {error}") from error


@cache
def _hints(kind: Any) -> dict[str, tuple[str, Any]]:
    """Returns the name and the type of each field of a dataclass, by its key in the file."""
    hints = typing.get_type_hints(kind)
    return {_key(field): (field.name, hints[field.name]) for field in fields(kind)}


def _key(field: Field[Any]) -> str:
    key: str = field.metadata.get("key", field.name)
    return key


def _check(holds: bool, expected: str, value: Any, where: str) -> None:
    if not holds:
        raise DecodeError(f"{where or 'the file'} must be {expected}. Received: {str(value)[:80]!r}.")
