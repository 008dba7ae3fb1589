"""Watches loops of a script's own over data that are indexed or drawn from, batch by batch."""

from __future__ import annotations

import functools
import operator
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from unstall.profiles.code_line import CodeLine
from unstall.profiles.data.base import Adapter
from unstall.profiles.script.class_methods import Inside, replace_methods
from unstall.profiles.script.drawing import Batches
from unstall.profiles.script.loops import Loops, Pass
from unstall.profiles.stages.places import is_library


@dataclass(slots=True)
class _Drawing:
    """A pass that a script makes by single draws.

    Attributes:
      watched: the pass.
      left: draws until the data have been drawn from once; None where that is not known.
      seen: indices that were drawn in it.
    """

    watched: Pass
    left: int | None
    seen: set[int] = field(default_factory=set)


def watch_indexed(adapter: Adapter, base: type, loops: Loops) -> Callable[[], None]:
    """Tells `loops` of each pass of the script over data of a class, whichever way batches are drawn from them.

    Args:
      adapter: of such data.
      base: the class, whose methods that give batches are replaced, in it and in all that inherit from it.
    Returns:
      What restores the methods.
    """
    indexed = _Indexed(adapter, loops)
    undo = ExitStack()
    undo.callback(replace_methods(base, ["__getitem__", "__next__"], indexed.watched))
    undo.callback(replace_methods(base, ["__iter__"], indexed.iterated))
    return undo.close


class _Indexed:
    """Loops over data, or over indices such as `batch = data[index]`.

    Nobody says when a pass over indices ends: the next one begins with an index that was drawn in it, or once it has
    had as many batches as the data have.
    """

    def __init__(self, adapter: Adapter, loops: Loops) -> None:
        self._adapter = adapter
        self._loops = loops
        self._drawings: dict[tuple[int, CodeLine], _Drawing] = {}
        self._inside = Inside()
        self._pid = os.getpid()

    def watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def draw(data: Any, *index: Any, **by_name: Any) -> Any:
            place = self._place(sys._getframe(1))
            watched = None if place is None else self._pass(place, data, index)
            if watched is None:
                return original(data, *index, **by_name)
            self._inside.runs = True
            try:
                return watched.draw(lambda: original(data, *index, **by_name))
            finally:
                self._inside.runs = False

        return draw

    def iterated(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __iter__(data: Any) -> Any:
            iterator = original(data)
            place = self._place(sys._getframe(1))
            if place is None or iterator is data:  # its `__next__` is watched
                return iterator
            return Batches(self._loops.begin(self._adapter, data, place), lambda: self._drawn_inside(iterator))

        return __iter__

    def _drawn_inside(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Yields the batches of an iterator, which may index the data in its turn."""
        while True:
            self._inside.runs = True
            try:
                batch = next(iterator)
            except StopIteration:
                return
            finally:
                self._inside.runs = False
            yield batch

    def _place(self, frame: Any) -> CodeLine | None:
        """Returns the line of a caller's loop; None where a library, or a worker of one, asks for a batch."""
        # First what costs least: workers of Keras' ask for every batch.
        if self._inside.runs or threading.current_thread() is not threading.main_thread() or os.getpid() != self._pid:
            return None
        place = self._loops.place_of(frame)
        return None if place is None or is_library(place.file) else place

    def _pass(self, place: CodeLine, data: Any, index: tuple[Any, ...]) -> Pass | None:
        """Returns the pass that a draw belongs to; None for a draw behind the last batch."""
        key = id(data), place
        drawing = self._drawings.get(key)
        number = _number(index[0]) if index else None
        # Python ends `for batch in data` by an index past the end, where a version of Keras gives data no `__iter__`.
        if drawing is not None and drawing.left == 0 and number == len(drawing.seen) and number not in drawing.seen:
            with suppress(StopIteration):
                drawing.watched.draw(lambda: next(iter(())))
            return None
        again = drawing is not None and (number in drawing.seen or drawing.left == 0 or not drawing.watched.runs)
        if drawing is not None and again:
            drawing.watched.close()
        if drawing is None or again:
            drawing = self._drawings[key] = _Drawing(self._loops.begin(self._adapter, data, place), _length(data))
        if number is not None:
            drawing.seen.add(number)
        drawing.left = None if drawing.left is None else drawing.left - 1
        return drawing.watched


def _number(index: Any) -> int | None:
    """Returns an index as a number; None for any other."""
    try:
        return operator.index(index)
    except Exception:  # an index can be any object of the script
        return None


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except Exception:  # the script's own code; some data have no length
        return None
