"""Arrays from one process to another that it was forked from: a pipe takes longer for a batch than cropping it."""

from __future__ import annotations

import math
import mmap
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

# Makes an array of a shape and a type, whatever is in it.
Empty = Callable[[tuple[int, ...], DTypeLike], NDArray[Any]]
# Where an array may begin: as far apart as lines of a core's cache.
_LINE_BYTES = 64


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
        self._address = _address(self._memory)
        self._used = self._end = 0

    def turn_to(self, turn: int) -> None:
        """Turns to a place, and forgets what lies in it."""
        self._used = turn % self._places * self._place_bytes
        self._end = self._used + self._place_bytes

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Returns an array in the place, or one like any other where there is no room: `numpy.empty`, here.

        So nothing is copied, and the system need not find, and clear, memory for each batch.
        """
        begin, size_bytes = _up_to_line(self._used), math.prod(shape) * np.dtype(dtype).itemsize
        if not size_bytes or begin + size_bytes > self._end:
            return np.empty(shape, dtype)
        self._used = begin + size_bytes
        return np.frombuffer(self._memory[begin : self._used], dtype).reshape(shape)

    def dumps(self, answer: tuple[Any, ...]) -> bytes:
        """Writes arrays to the place, unless they lie in it; returns all else, and them too where they find no room."""
        buffers: list[pickle.PickleBuffer] = []
        rest = pickle.dumps(answer, protocol=5, buffer_callback=buffers.append)
        spans = []
        for part in (buffer.raw() for buffer in buffers):
            begin = _address(part) - self._address
            if not 0 <= begin < len(self._memory):
                begin = self._used
                if begin + part.nbytes > self._end:
                    return pickle.dumps((pickle.dumps(answer, protocol=5), []))
                self._used += part.nbytes
                self._memory[begin : self._used] = part
            spans.append((begin, begin + part.nbytes))
        return pickle.dumps((rest, spans))

    def loads(self, data: bytes, *, copy: bool) -> tuple[Any, ...]:
        """Returns an answer, with copies of its arrays, the caller's own; or as they lie until its place's turn."""
        rest, spans = pickle.loads(data)
        parts = [self._memory[begin:end] for begin, end in spans]
        answer: tuple[Any, ...] = pickle.loads(rest, buffers=[bytearray(part) for part in parts] if copy else parts)
        return answer


def _up_to_line(size_bytes: int) -> int:
    return -(-size_bytes // _LINE_BYTES) * _LINE_BYTES


def _address(memory: memoryview) -> int:
    """Returns where memory lies in this process; nowhere, if it is none."""
    return int(np.frombuffer(memory, np.uint8).__array_interface__["data"][0]) if memory.nbytes else -1
