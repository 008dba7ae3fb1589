"""Runs a user's function in another Python environment. Started by its path, as a program: `Child` starts it.

This file imports the standard library alone, and no module of ours: whatever the function imports, `unstall` included,
comes from the environment that was named. The parent takes the time; this process counts images.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import traceback
from importlib import metadata
from importlib.machinery import PathFinder
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any


class Refused(Exception):
    """The function cannot be measured; the message says why."""


class Function:
    """One function of the user's, which is called again and again.

    Args:
      text: "module:function". The function returns how many images it went through, or batches to go through.
      folder: where the user's module lies.
    """

    def __init__(self, text: str, folder: str) -> None:
        self._text, self._folder = text, folder
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
          Refused: if there is no such function, it fails, does not say how many images it went through, or ran code of
            the folder instead of the environment's.
        """
        try:
            if self._function is None:
                module, _, name = self._text.partition(":")
                self._function = getattr(importlib.import_module(module), name)
            images = sum(_images(self._function()) for _ in range(times))
        except Exception as error:  # the user's code and its libraries can raise anything
            first = (str(error).strip().splitlines() or [""])[0][:200]
            raise Refused(f"{self._text}: {type(error).__name__}: {first}") from error
        if images < 1:
            raise Refused(f"{self._text} must go through at least 1 image. Received: {images}")
        self._check_origins()
        return images

    def _check_origins(self) -> None:
        """Checks that no package of the environment was hidden by one of the folder: both sides would run the same.

        Raises:
          Refused: if a module was loaded from the folder that the environment has as well.
        """
        folder = Path(self._folder).resolve()
        path = [entry for entry in sys.path if Path(entry or os.curdir).resolve() != folder]
        for name, module in sorted(sys.modules.items()):
            file = Path(getattr(module, "__file__", None) or "").resolve()
            if "." in name or folder not in (file.parent, file.parent.parent):  # a module, or a package's `__init__`
                continue
            if any(origin != file for origin in _origins(name, path)):
                raise Refused(
                    f"{name!r} was loaded from this folder, and the environment has one too: both sides would be the "
                    f"same code. Run it from a folder that holds the function and no {name}"
                )


def _origins(name: str, path: list[str]) -> list[Path]:
    """Returns the files from which a module would be loaded, by each way in which Python finds modules."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    found = [finder.find_spec(name, path if finder is PathFinder else None) for finder in finders]
    return [Path(spec.origin).resolve() for spec in found if spec is not None and spec.has_location and spec.origin]


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
    if isinstance(batch, (tuple, list)) and batch and hasattr(batch[0], "__len__"):
        return _length(batch[0])
    return len(batch)


def _receive(connection: Connection, requests: SimpleQueue[Any]) -> None:
    """Queues requests. When the parent has ended, kills this process and those that it started."""
    try:
        while True:
            requests.put(connection.recv())
    except (EOFError, OSError):
        os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Answers requests `(method, arguments)` until the parent ends: "ok" and the answer, or "refused" and the reason.

    The connection to the parent is standard input, which the function finds empty. The parent sends the arguments of
    `Function` first.
    """
    # The folder of this file, which Python puts on the path: its modules would hide others of the same names.
    sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(os.path.abspath(__file__))]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    connection = Connection(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    function = Function(*connection.recv())
    requests: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    while True:
        method, arguments = requests.get()
        try:
            reply = ("ok", getattr(function, method)(*arguments))
        except Refused as error:
            reply = ("refused", str(error))
        except (Exception, SystemExit) as error:  # a function that calls `sys.exit` must not end the run
            traceback.print_exc()
            reply = ("failed", f"{type(error).__name__}: {error}")
        connection.send(reply)


if __name__ == "__main__":
    main()
