"""Tells a pass of a script's loop of each batch that is drawn."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unstall.profiles.script.loops import Pass


class Batches:
    """Takes the place of the iterator of one pass, and tells its `Pass` of each batch.

    Args:
      begin: returns the iterator; called at once, when the epoch has begun.
    """

    def __init__(self, watched: Pass, begin: Callable[[], Iterator[Any]]) -> None:
        self._pass = watched
        self._batches = begin()

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        return self._pass.draw(lambda: next(self._batches))

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":  # `copy` asks for attributes of an object before the object has any
            raise AttributeError(name)
        return getattr(self._batches, name)


def told(iterator: Any, watched: Pass) -> Any:
    """Returns the iterator, which from now on tells a `Pass` of each batch that Python draws.

    TensorFlow and Grain ask for the type of an iterator that a script passes on, so that the object stays the iterator.
    One of a type that cannot be changed so, such as a generator, is wrapped.
    """
    try:
        owner: Any = type(iterator)
        iterator.__class__ = _watched_type(owner)
        iterator._unstall_pass = watched
    except TypeError:
        return Batches(watched, lambda: iterator)
    return iterator


@functools.cache
def _watched_type(owner: Any) -> Any:
    """Returns the type of an iterator that tells its `Pass`, in `_unstall_pass`, of each batch that Python draws."""

    class Watched(owner):
        _unstall_pass: Pass

        def __next__(self) -> Any:
            return self._unstall_pass.draw(super().__next__)

        def get_next(self) -> Any:
            return self._unstall_pass.draw(super().get_next)

    Watched.__name__, Watched.__qualname__, Watched.__module__ = owner.__name__, owner.__qualname__, owner.__module__
    return Watched
