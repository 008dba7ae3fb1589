"""Runs a user's function in another Python environment, which needs no package of this project.

The parent takes the time. So this file, and the files that it imports, need the standard library alone.
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Any

import unstall
from benchmarks.lab.backend import Refused
from benchmarks.lab.serve import one_line


class EnvironmentSession:
    """Runs one function again and again.

    Args:
      text: "module:function". The function returns how many images it went through, or batches to go through.
      folder: where the user's module lies.
    """

    def __init__(self, text: str, folder: str) -> None:
        self._text = text
        sys.path.insert(0, folder)
        self._function: Any = None

    def versions(self) -> dict[str, str]:
        """Returns the versions of all packages of this environment, by name."""
        python = ".".join(map(str, sys.version_info[:3]))
        found = {item.metadata["Name"]: item.version for item in metadata.distributions()}
        return {"python": python, **{str(name).lower(): version for name, version in found.items() if name}}

    def run(self, times: int) -> int:
        """Calls the function so many times. Returns how many images it went through in all.

        Raises:
          Refused: if there is no such function, it fails, or it does not say how many images it went through.
        """
        try:
            if self._function is None:
                self._function = unstall.of_users(self._text)
            images = sum(_images(self._function()) for _ in range(times))
        except Exception as error:  # the user's code and its libraries can raise anything
            raise Refused(f"{self._text}: {one_line(error)}") from error
        if images < 1:
            raise Refused(f"{self._text} must go through at least 1 image. Received: {images}")
        return images

    def close(self) -> None:
        """Does nothing: the process ends."""


def _images(returned: Any) -> int:
    if hasattr(returned, "__index__"):
        return int(returned)
    if not hasattr(returned, "__iter__"):
        raise TypeError(f"it must return a number of images, or batches. Received: {type(returned).__name__}")
    return sum(map(_length, returned))


def _length(batch: Any) -> int:
    """Returns the length of the first part of a batch that has no parts of its own."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, tuple | list) and batch and hasattr(batch[0], "__len__"):
        return _length(batch[0])
    return len(batch)
