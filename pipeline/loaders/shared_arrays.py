"""Hands arrays from a forked process to its parent in shared memory: a socket takes longer than cropping the batch.

Why not `multiprocessing.shared_memory`: its memory has a name in /dev/shm, and a process of its own, the
`resource_tracker`, removes the name. The name stays when the whole process group is killed. Memory that a fork inherits
needs no name, and the system frees it with the last process that has it.
"""

from __future__ import annotations

import math
import mmap
import pickle
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

# Arrays begin at multiples of this: the size of a line in a core's cache.
LINE_BYTES = 64
# An array in shared memory: its offset, its shape and its dtype.
_Stored = tuple[int, tuple[int, ...], str]


class SharedArrays:
    """Memory that two processes share, in which one gives the other the arrays of its answers.

    The memory consists of places of one size; the answers use them in turn.

    Args:
      place_bytes: the largest size of an answer's arrays. Larger ones are pickled into the answer.
      places: number of places. An answer may be asked for only when the caller is done with the arrays of the answer
        `places` before it, so that no array is overwritten while it is read.
    """

    def __init__(self, place_bytes: int, *, places: int) -> None:
        self._place_bytes, self._places = _up_to_line(place_bytes), places
        # Takes no physical memory until something is written to it.
        size_bytes = places * self._place_bytes
        self._memory = memoryview(mmap.mmap(-1, size_bytes) if size_bytes else bytearray())
        self._used = self._end = 0
        # The arrays that `empty` made in the current place, each with its offset.
        self._arrays: list[tuple[NDArray[Any], int]] = []

    def turn_to(self, turn: int) -> None:
        """Makes the place of answer number `turn` the current place, and empties it."""
        self._used = turn % self._places * self._place_bytes
        self._end = self._used + self._place_bytes
        self._arrays.clear()

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Works like `numpy.empty`, but makes the array in the current place, if there is room.

        Such an array need not be copied, and the system need not find and clear memory for each batch.
        """
        begin = self._reserve(math.prod(shape) * np.dtype(dtype).itemsize)
        if begin is None:
            return np.empty(shape, dtype)
        array: NDArray[Any] = np.ndarray(shape, dtype, self._memory, begin)
        self._arrays.append((array, begin))
        return array

    def _reserve(self, size_bytes: int) -> int | None:
        begin = self._used
        if begin + size_bytes > self._end:
            return None
        self._used = _up_to_line(begin + size_bytes)
        return begin

    def dumps(self, number: int, succeeded: bool, value: Any) -> bytes:
        """Returns an answer as bytes.

        If `value` is an array or a tuple of arrays, and the current place has room for them, the answer only says where
        they are. Pickled arrays take several times as long, in band or out of band.

        Args:
          number: of the batch.
          succeeded: whether `value` is the batch; else it is the error.
          value: anything that can be pickled.
        """
        stored = self._store(value) if succeeded else None
        return pickle.dumps((number, succeeded, value if stored is None else None, stored))

    def loads(self, data: bytes, *, copy: bool) -> tuple[int, bool, Any]:
        """Returns (number, succeeded, value) of an answer.

        Args:
          data: what `dumps` returned.
          copy: whether to copy arrays out of the shared memory; if not, they are good until their place is used again.
        """
        number, succeeded, value, stored = pickle.loads(data)
        if stored is not None:
            value = tuple(self._at(array, copy) for array in stored)
            value = value if isinstance(stored, tuple) else value[0]
        return number, succeeded, value

    def _store(self, value: Any) -> tuple[_Stored, ...] | list[_Stored] | None:
        """Puts arrays into the current place.

        Returns:
          A tuple for a tuple of arrays; a list of one for an array; None for anything else, or if there is no room.
        """
        stored = []
        for array in value if type(value) is tuple else [value]:
            if type(array) is not np.ndarray or array.dtype.isbuiltin != 1 or array.dtype.hasobject:
                return None
            begin = self._begin_of(array)
            if begin is None:
                return None
            stored.append((begin, array.shape, array.dtype.str))
        return tuple(stored) if type(value) is tuple else stored

    def _begin_of(self, array: NDArray[Any]) -> int | None:
        """Returns the offset of an array that `empty` made, or copies the array into the place; None without room."""
        for placed, begin in self._arrays:
            if placed is array:
                return begin
        reserved = self._reserve(array.nbytes)
        if reserved is not None:
            np.ndarray(array.shape, array.dtype, self._memory, reserved)[...] = array
        return reserved

    def _at(self, stored: _Stored, copy: bool) -> NDArray[Any]:
        begin, shape, dtype = stored
        array: NDArray[Any] = np.ndarray(shape, dtype, self._memory, begin)
        return array.copy() if copy else array


def _up_to_line(size_bytes: int) -> int:
    return -(-size_bytes // LINE_BYTES) * LINE_BYTES
