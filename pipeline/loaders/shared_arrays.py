"""Arrays from one process to another that it was forked from: a socket takes longer for a batch than cropping it."""

from __future__ import annotations

import math
import mmap
import pickle
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

# Where an array may begin: as far apart as lines of a core's cache.
_LINE_BYTES = 64
# Where an array lies, its shape and its type.
_Place = tuple[int, tuple[int, ...], str]


class SharedArrays:
    """Memory of two processes, through which one gives the other the arrays of its answers: places, used in turn.

    Args:
      place_bytes: of the arrays of an answer, at most; others find no room, and go another way.
      places: as many as answers may be asked for before the arrays of the oldest are done with, so that none is written
        to while it is read.
    """

    def __init__(self, place_bytes: int, *, places: int) -> None:
        self._place_bytes, self._places = _up_to_line(place_bytes), places
        # Takes no memory until something is written to it.
        size_bytes = places * self._place_bytes
        self._memory = memoryview(mmap.mmap(-1, size_bytes) if size_bytes else bytearray())
        self._used = self._end = 0
        # The arrays that were made in the place, each with where it lies.
        self._made: list[tuple[NDArray[Any], int]] = []

    def turn_to(self, turn: int) -> None:
        """Turns to a place, and forgets what lies in it."""
        self._used = turn % self._places * self._place_bytes
        self._end = self._used + self._place_bytes
        self._made.clear()

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Returns an array in the place, or one like any other where there is no room: `numpy.empty`, here.

        So nothing is copied, and the system need not find, and clear, memory for each batch.
        """
        begin = self._reserve(math.prod(shape) * np.dtype(dtype).itemsize)
        if begin is None:
            return np.empty(shape, dtype)
        array: NDArray[Any] = np.ndarray(shape, dtype, self._memory, begin)
        self._made.append((array, begin))
        return array

    def _reserve(self, size_bytes: int) -> int | None:
        begin = self._used
        if begin + size_bytes > self._end:
            return None
        self._used = _up_to_line(begin + size_bytes)
        return begin

    def dumps(self, number: int, made: bool, value: Any) -> bytes:
        """Returns an answer; of an array, or of a tuple of arrays, only where they lie, if they find room in the place.

        Pickled as they are, arrays take several times as long, wherever their elements go.
        """
        places = self._placed(value) if made else None
        return pickle.dumps((number, made, value if places is None else None, places))

    def loads(self, data: bytes, *, copy: bool) -> tuple[int, bool, Any]:
        """Returns the number, `made` and value of an answer, with copies of its arrays, the caller's own.

        Or with its arrays as they lie, until their place's turn.
        """
        number, made, value, places = pickle.loads(data)
        if places is not None:
            value = tuple(self._at(place, copy) for place in places)
            value = value if isinstance(places, tuple) else value[0]
        return number, made, value

    def _placed(self, value: Any) -> tuple[_Place, ...] | list[_Place] | None:
        """Returns where the arrays of a tuple lie, or, in a list, that of one array; None if not all find room."""
        places = []
        for part in value if type(value) is tuple else [value]:
            if type(part) is not np.ndarray or part.dtype.isbuiltin != 1 or part.dtype.hasobject:
                return None
            begin = self._begin_of(part)
            if begin is None:
                return None
            places.append((begin, part.shape, part.dtype.str))
        return tuple(places) if type(value) is tuple else places

    def _begin_of(self, array: NDArray[Any]) -> int | None:
        """Returns where an array lies: one that was not made in the place is copied to it, if there is room."""
        for made, begin in self._made:
            if made is array:
                return begin
        reserved = self._reserve(array.nbytes)
        if reserved is not None:
            np.ndarray(array.shape, array.dtype, self._memory, reserved)[...] = array
        return reserved

    def _at(self, place: _Place, copy: bool) -> NDArray[Any]:
        begin, shape, dtype = place
        array: NDArray[Any] = np.ndarray(shape, dtype, self._memory, begin)
        return array.copy() if copy else array


def _up_to_line(size_bytes: int) -> int:
    return -(-size_bytes // _LINE_BYTES) * _LINE_BYTES
