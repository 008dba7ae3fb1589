"""Replaces methods of a class and of all that inherit from it, those that a script defines later too."""

from __future__ import annotations

import functools
import operator
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any


class _Replaced:
    """A method in the place of another. Where a class is pickled by value, as for a worker process, the other goes."""

    def __init__(self, original: Callable[..., Any], call: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self._original, self._call = original, call

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else types.MethodType(self._call, owner)

    def __call__(self, *arguments: Any, **by_name: Any) -> Any:
        return self._call(*arguments, **by_name)

    def __reduce__(self) -> Any:
        return operator.getitem, ((self._original,), 0)


class Inside(threading.local):
    """Whether this thread runs a replaced method: what that calls in its turn is no loop of the script's."""

    runs = False


def replace_methods(
    base: Any, names: Sequence[str], replaced: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[[], None]:
    """Replaces methods wherever a class defines them.

    Args:
      base: the class.
      names: of the methods.
      replaced: returns what takes the place of a method.
    Returns:
      A function that puts all methods back.
    """
    undo: list[Callable[[], None]] = []

    def replace_in(owner: Any) -> None:
        for name in names:
            original = vars(owner).get(name)
            if original is not None:
                setattr(owner, name, _Replaced(original, replaced(original)))
                undo.append(functools.partial(setattr, owner, name, original))

    waiting = [base]
    while waiting:
        owner = waiting.pop()
        waiting += owner.__subclasses__()
        replace_in(owner)
    own = vars(base).get("__init_subclass__")

    def __init_subclass__(owner: Any, **options: Any) -> None:
        if own is None:
            super(base, owner).__init_subclass__(**options)
        else:
            own.__get__(None, owner)(**options)
        replace_in(owner)

    base.__init_subclass__ = classmethod(__init_subclass__)

    def put_back() -> None:
        if own is None:
            del base.__init_subclass__
        else:
            base.__init_subclass__ = own
        while undo:
            undo.pop()()

    return put_back
