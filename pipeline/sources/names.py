"""The names of many files in little memory: strings of bytes that hold several names each."""

from __future__ import annotations

import operator
import os
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import overload

# How the system encodes names. `os.fsencode` and `os.fsdecode` take twice the time.
ENCODING = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
# How many names stand in a group, each with `END` behind it, which no name of a file can hold.
GROUP_NAMES = 16
END = b"\0"


class FileNames(Sequence[str]):
    """Names of files: a sequence of strings, each of which is made when it is asked for.

    A Python string takes some 50 bytes more than the name's own bytes, and a list's place for it 8. Two sequences are
    equal if they hold the same names.

    Args:
      encoded: the names as the system encodes them, each with `END` behind it.
      firsts: where each group begins in it.
      names: how many names there are.
      folder: put before each name; "" for none.
    """

    __slots__ = ("_encoded", "_firsts", "_folder", "_names")

    def __init__(
        self, encoded: bytes | bytearray = b"", firsts: Sequence[int] = (), names: int = 0, folder: str = ""
    ) -> None:
        self._encoded, self._firsts, self._names, self._folder = encoded, firsts, names, folder

    @classmethod
    def of(cls, names: Iterable[str]) -> FileNames:
        """Returns these names; asks for each once.

        Raises:
          ValueError: if a name holds a zero byte.
        """
        encoded, firsts, number = bytearray(), array("q"), -1
        for number, name in enumerate(names):
            if number % GROUP_NAMES == 0:
                firsts.append(len(encoded))
            encoded += name.encode(*ENCODING) + END
        if (ends := encoded.count(END)) != number + 1:
            raise ValueError(f"No name of a file may hold a zero byte. Received: {ends - number - 1} zero bytes.")
        return cls(encoded, firsts, number + 1)

    def below(self, folder: str | os.PathLike[str]) -> FileNames:
        """Returns the paths of files that are named by their paths below a folder; the names are not copied."""
        return FileNames(self._encoded, self._firsts, self._names, os.path.join(folder, ""))

    def part(self, chosen: Iterable[int]) -> FileNames:
        """Returns some of the names, in the order of `chosen`."""
        part = FileNames.of(map(self._name, chosen))
        return FileNames(part._encoded, part._firsts, part._names, self._folder)

    def groups(self) -> Iterator[bytes]:
        """Yields groups of `GROUP_NAMES` names, without the folder; the last group may hold fewer."""
        for first, end in pairwise((*self._firsts, len(self._encoded))):
            yield bytes(self._encoded[first:end])

    def _name(self, index: int) -> str:
        # `range` turns an index below 0 into one from the end, and raises an IndexError.
        group, place = divmod(range(len(self))[index], GROUP_NAMES)
        end = self._firsts[group + 1] if group + 1 < len(self._firsts) else len(self._encoded)
        return self._encoded[self._firsts[group] : end].split(END)[place].decode(*ENCODING)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> FileNames: ...
    def __getitem__(self, index: int | slice) -> str | FileNames:
        if isinstance(index, slice):
            return self.part(range(len(self))[index])
        return self._folder + self._name(index)

    def __iter__(self) -> Iterator[str]:
        for group in self.groups():
            for name in group[:-1].split(END):
                yield self._folder + name.decode(*ENCODING)

    def __len__(self) -> int:
        return self._names

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) or not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __repr__(self) -> str:
        return f"FileNames({len(self)} names)"
