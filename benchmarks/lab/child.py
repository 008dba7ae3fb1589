"""A child process that answers requests, seen from its parent: started, asked, timed out, killed, and why it ended.

All commands that measure in another process use this one. What runs in the child is in `serve.py`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import unstall
from pipeline.text import printable
from profiles import Device, clock

# Before a child answers at all: imports, the first trace of a large network, a prepared file.
OPEN_TIMEOUT_S = 300.0
# A child that was asked to leave gets this long before it is killed, and the processes that it started get this long.
_LEAVE_S, _WORKERS_LEAVE_S = 2.0, 1.0
# A process that was killed, or that closed its connection, is gone this soon.
_KILL_S = 5.0
# How often the parent looks whether a child that does not answer is still there.
_LOOK_S = 1.0
# The program of a child. Our folder is on its import path for as long as `unstall` takes to load, and the working
# folder is not there at all.
_PROGRAM = """\
import sys
sys.path[:] = [{folder!r}, *filter(None, sys.path)]
import unstall
del sys.path[0]
unstall.of_ours({main!r})()
"""
_MAIN = "benchmarks.lab.serve:main"


class ChildDied(Exception):
    """The child is gone, or was ended because it hung; the message says which."""


class ChildHung(ChildDied):
    """The child did not answer in time and was ended."""


class JobRefused(Exception):
    """The child lives and says why it cannot do this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a child runs that must not have its parent's import path: another interpreter, or the code of a folder.

    Attributes:
      folder: the working folder; it is not on the import path.
      python: the interpreter.
      environment: variables that the child has beside those of its parent.
    """

    folder: Path
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)


class Child:
    """One child process, in a process group of its own, so that it can be killed with all that it started.

    Args:
      session: the class that answers there, as "module:Class". This process does not import it, nor what it imports.
      device: what it measures; other devices are hidden from it.
      log: a file for its output.
      arguments: of the class.
      home: where it runs; as this process does unless given.
    Raises:
      ChildDied: if it ends before it has read its arguments.
      OSError: if no process can be started.
    """

    def __init__(self, session: str, device: Device, log: Path, *arguments: Any, home: Home | None = None) -> None:
        self._log = log
        self._killed = False
        program = _PROGRAM.format(folder=str(Path(unstall.__file__).resolve().parent), main=_MAIN)
        self._connection, theirs = multiprocessing.Pipe()
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable if home is None else home.python, "-c", program],
                stdin=theirs.fileno(),
                stdout=output,
                stderr=output,
                cwd=None if home is None else home.folder,
                env=None if home is None else {**os.environ, **home.environment},
                start_new_session=True,
            )
        try:
            self._connection.send(sys.path if home is None else None)
            self._connection.send((session, device, arguments))
        except OSError as error:
            raise self._died() from error
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        """Asks for one thing and waits for the answer.

        Raises:
          JobRefused: if the child says no.
          ChildDied: if it is gone or does not answer in time.
        """
        self.send(method, *arguments)
        return self.receive(timeout_s=timeout_s)

    def send(self, method: str, *arguments: Any) -> None:
        """Asks for one thing.

        Raises:
          ChildDied: if the child is gone.
        """
        try:
            self._connection.send((method, arguments))
        except OSError as error:
            raise self._died() from error

    def receive(self, *, timeout_s: float) -> Any:
        """Waits for the answer to the first request that has none yet.

        Raises:
          JobRefused: if the child says no.
          ChildDied: if it is gone or does not answer in time.
        """
        deadline_ns = clock.now_ns() + int(timeout_s * 1e9)
        try:
            while not self._connection.poll(min(_LOOK_S, max(0.0, (deadline_ns - clock.now_ns()) / 1e9))):
                # A worker that outlives the child may hold its end of the connection open.
                if self._process.poll() is not None and not self._connection.poll():
                    raise EOFError
                if clock.now_ns() >= deadline_ns:
                    self.kill()
                    raise ChildHung(f"no answer within {timeout_s:.0f} s: it hung and was ended")
            kind, value = self._connection.recv()
        except (EOFError, OSError) as error:  # a connection that ends within an answer is the latter, of no kind
            raise self._died() from error
        if kind != "ok":
            raise JobRefused(value)
        return value

    def close(self) -> None:
        """Lets the child remove what it wrote, then ends it."""
        with contextlib.suppress(ChildDied, JobRefused, subprocess.TimeoutExpired):
            self.ask("close", timeout_s=10)
            self._process.wait(_KILL_S)
        self.kill()

    def kill(self) -> None:
        """Ends the child and all that it started."""
        kill_all([self])

    def _died(self) -> ChildDied:
        """Ends what the child started, and returns why it is gone itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_S)
        last_words = self._last_words()
        self.kill()
        code = self._process.returncode
        if code == -signal.SIGKILL:
            return ChildDied("the process was killed; most likely the machine ran out of memory")
        if code is not None and code < 0:
            return ChildDied(f"the process died of signal {signal.Signals(-code).name}")
        return ChildDied(f"the process ended with exit code {code}{last_words}")

    def _last_words(self) -> str:
        """Returns the last line of the log: there a process that ends by itself says why."""
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()
            if lines:
                return f": {printable(lines[-1].strip()[:200])}"
        return ""

    def _signal_group(self, number: int) -> bool:
        """Sends a signal to the child and all that it started. Returns whether any of them is left."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def kill_all(children: Sequence[Child]) -> None:
    """Ends children and all that they started, all at the same time.

    A child is asked first, so that it removes what it wrote; then its workers and Python's resource tracker, which
    remove memory that they share.
    """
    living = [child for child in children if not child._killed]
    for child in living:
        child._process.terminate()
    _wait_until(lambda: all(child._process.poll() is not None for child in living), _LEAVE_S)
    for child in living:
        child._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may hold the process
            child._process.wait(_KILL_S)
        child._signal_group(signal.SIGTERM)
    _wait_until(lambda: not any(child._signal_group(0) for child in living), _WORKERS_LEAVE_S)
    for child in living:
        child._signal_group(signal.SIGKILL)
        child._killed = True


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline_ns = clock.now_ns() + int(timeout_s * 1e9)
    while not condition() and clock.now_ns() < deadline_ns:
        clock.sleep_until_ns(clock.now_ns() + 10_000_000)
