"""The names of many files in little memory: one string of bytes, and where each name in it ends."""

from __future__ import annotations

import operator
import os
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

# How the system encodes names. `os.fsencode` and `os.fsdecode` take twice the time.
ENCODING = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


class FileNames(Sequence[str]):
    """Names of files: a sequence of strings, each of which is made when it is asked for.

    A Python string takes some 50 bytes more than the name's own bytes, a list's place for it 8. Two sequences are equal
    if they hold the same names.

    Args:
      encoded: the names, one after another, as the system encodes them.
      ends: where each name ends in it.
      folder: put before each name; "" for none.
    """

    __slots__ = ("_encoded", "_ends", "_folder")

    def __init__(self, encoded: bytes = b"", ends: Iterable[int] = (), folder: str = "") -> None:
        self._encoded, self._folder = encoded, folder
        self._ends = ends if isinstance(ends, array) else array("q", ends)

    @classmethod
    def of(cls, names: Iterable[str]) -> FileNames:
        """Returns these names; asks for each once."""
        encoded, ends = bytearray(), array("q")
        for name in names:
            encoded += name.encode(*ENCODING)
            ends.append(len(encoded))
        return cls(bytes(encoded), ends)

    def below(self, folder: str | os.PathLike[str]) -> FileNames:
        """Returns the paths of files that are named by their paths below a folder; the names are not copied."""
        return FileNames(self._encoded, self._ends, os.path.join(folder, ""))

    def part(self, chosen: Iterable[int]) -> FileNames:
        """Returns some of the names, in the order of `chosen`."""
        part = FileNames.of(map(self._name, chosen))
        return FileNames(part._encoded, part._ends, self._folder)

    def to_bytes(self) -> tuple[bytes, NDArray[np.int64]]:
        """Returns the names as bytes one after another, without the folder, and where each ends, (names,)."""
        return self._encoded, np.frombuffer(self._ends, np.int64)

    def _name(self, index: int) -> str:
        index = range(len(self))[index]  # counts from the end where it is below 0
        begin = self._ends[index - 1] if index else 0
        return self._encoded[begin : self._ends[index]].decode(*ENCODING)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> FileNames: ...
    def __getitem__(self, index: int | slice) -> str | FileNames:
        if isinstance(index, slice):
            return self.part(range(len(self))[index])
        return self._folder + self._name(index)

    def __iter__(self) -> Iterator[str]:
        first = 0
        for end in self._ends:
            yield self._folder + self._encoded[first:end].decode(*ENCODING)
            first = end

    def __len__(self) -> int:
        return len(self._ends)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) or not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __repr__(self) -> str:
        return f"FileNames({len(self)} names)"
