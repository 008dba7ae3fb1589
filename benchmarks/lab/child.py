"""Starts child processes, sends them requests, ends those that do not answer in time, and says why a child ended.

All commands that measure in another process use this module. A `Child` runs `serve.py`; `program` runs anything else.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

import unstall
from unstall.benchmarks.lab.serve import without_folders
from unstall.profiles import Device, clock
from unstall.text import printable

# Time for the first answers of a child, which imports, traces a large network and writes a prepared file.
OPEN_TIMEOUT_S = 300.0
# A window hangs if it takes this many times as long as expected, and at least this many seconds.
HANG_RATIO, HANG_LEAST_S = 30.0, 60.0
# No loader is slower than this: a child that takes longer for an epoch hangs.
_LEAST_IMAGES_PER_SEC = 20
# How long SIGTERM may take to end a child, and to end the processes that the child started. Then SIGKILL follows.
_LEAVE_S, _WORKERS_LEAVE_S = 2.0, 1.0
# Wait at most this long for the end of a process that was killed or that closed its connection.
_KILL_S = 5.0
# How often the parent checks that a child that has not answered yet is still running.
_LOOK_S = 1.0
# The program of a child. The folder of `unstall` is on the child's import path only while `unstall` is imported. The
# empty path, which stands for the working folder, is removed.
_PROGRAM = """\
import sys
sys.path[:] = [{folder!r}, *filter(None, sys.path)]
import unstall
del sys.path[0]
unstall.of_ours({main!r})()
"""
_MAIN = "benchmarks.lab.serve:main"


class ChildDied(Exception):
    """The child process has ended, or hung and was ended; the message says which."""


class ChildHung(ChildDied):
    """The child did not answer in time and was ended."""


class JobRefused(Exception):
    """The child is still running, and has answered why it cannot do what was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where to run a child without its parent's import path: with another interpreter, or on the code of a folder.

    Attributes:
      folder: the child's working folder, which is not on the child's import path.
      python: the child's interpreter.
      environment: environment variables that the child gets in addition to its parent's.
    """

    folder: Path
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)


class Child:
    """A child process in a process group of its own, so that the processes that it starts can be killed with it.

    Args:
      session: the class whose methods answer requests, as "module:Class"; only the child imports this module. Or the
        file of a program that answers requests without `unstall`, and gets the arguments alone.
      device: the device that the child measures; GPUs are hidden from the child unless this device is a GPU. None for
        a program.
      log: the file to which the child's output is appended.
      arguments: the arguments of the class.
      home: where to run the child; None to run the child with this process' interpreter, folder and import path.
      environment: environment variables that the child gets in addition to its parent's and those of `home`.
      prefix: words before the child's command, such as those that run it in another network namespace.
    Raises:
      ChildDied: if the child ends before it has read its arguments.
      OSError: if no process can be started.
    """

    def __init__(
        self,
        session: str | Path,
        device: Device | None,
        log: Path,
        *arguments: Any,
        home: Home | None = None,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self._log = log
        self._killed = False
        code = ["-c", _PROGRAM.format(folder=str(unstall.ROOT), main=_MAIN)]
        words = [str(session)] if isinstance(session, Path) else code
        self._connection, theirs = multiprocessing.Pipe()
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(
                [*prefix, sys.executable if home is None else home.python, *words],
                stdin=theirs.fileno(),
                stdout=output,
                stderr=output,
                cwd=None if home is None else home.folder,
                env={**os.environ, **({} if home is None else home.environment), **(environment or {})},
                start_new_session=True,
            )
        try:
            if isinstance(session, Path):
                self._connection.send(arguments)
            else:
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
        """Calls a method of the child's session, and returns what the method returns.

        Raises:
          JobRefused: if the method refuses or fails.
          ChildDied: if the child has ended, or does not answer in time.
        """
        self.send(method, *arguments)
        return self.receive(timeout_s=timeout_s)

    def send(self, method: str, *arguments: Any) -> None:
        """Asks the child to call a method of its session; `receive` returns the answer.

        Raises:
          ChildDied: if the child has ended.
        """
        try:
            self._connection.send((method, arguments))
        except OSError as error:
            raise self._died() from error

    def receive(self, *, timeout_s: float) -> Any:
        """Waits for the answer to the earliest request whose answer was not received yet.

        Raises:
          JobRefused: if the method refused or failed.
          ChildDied: if the child has ended, or does not answer in time.
        """
        deadline_ns = clock.now_ns() + int(timeout_s * 1e9)
        try:
            while not self._connection.poll(min(_LOOK_S, max(0.0, (deadline_ns - clock.now_ns()) / 1e9))):
                # A worker that outlives the child may keep the child's end of the connection open.
                if self._process.poll() is not None and not self._connection.poll():
                    raise EOFError
                if clock.now_ns() >= deadline_ns:
                    self.kill()
                    raise ChildHung(f"no answer within {timeout_s:.0f} s: it hung and was ended")
            kind, value = self._connection.recv()
        except (EOFError, OSError) as error:  # OSError: the connection ended within an answer
            raise self._died() from error
        if kind != "ok":
            raise JobRefused(value)
        return value

    def close(self) -> None:
        """Asks the child to close its session, which removes the session's files, then ends the child."""
        with contextlib.suppress(ChildDied, JobRefused, subprocess.TimeoutExpired):
            self.ask("close", timeout_s=10)
            self._process.wait(_KILL_S)
        self.kill()

    def kill(self) -> None:
        """Ends the child and the processes that it started."""
        kill_all([self])

    def _died(self) -> ChildDied:
        """Ends the processes that the child started. Returns an error that says why the child itself ended."""
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
        """Returns the last line of the log, where a process that ends with an error has written the error."""
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()
            if lines:
                return f": {printable(without_folders(lines[-1]).strip()[:200])}"
        return ""

    def _signal_group(self, number: int) -> None:
        """Sends a signal to the child and the processes that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _has_workers(self) -> bool:
        """Whether a process of the child's group still runs.

        A process that has ended stays in its group until its parent reaps it. A container's first process, which
        becomes the parent of those whose own parent has ended, may never do so.
        """
        with contextlib.suppress(OSError):  # such as a system that hides its processes
            for pid in psutil.pids():
                with contextlib.suppress(OSError, psutil.Error):
                    if os.getpgid(pid) == self._process.pid and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                        return True
        return False


def images_timeout_s(images: int, least_s: float = OPEN_TIMEOUT_S) -> float:
    """Returns how long a child may take to read so many images, and at least `least_s`."""
    return max(least_s, images / _LEAST_IMAGES_PER_SEC)


def kill_all(children: Sequence[Child]) -> None:
    """Ends several children, and the processes that they started, in parallel.

    Each child gets SIGTERM first, so that it can remove its files. Then the processes that the child started (workers
    and Python's resource tracker) get SIGTERM, so that they can remove their shared memory. SIGKILL ends the rest.
    """
    living = [child for child in children if not child._killed]
    for child in living:
        child._process.terminate()
    _wait_until(lambda: all(child._process.poll() is not None for child in living), _LEAVE_S)
    for child in living:
        child._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a device's driver may delay the end
            child._process.wait(_KILL_S)
        child._signal_group(signal.SIGTERM)
    _wait_until(lambda: not any(child._has_workers() for child in living), _WORKERS_LEAVE_S)
    for child in living:
        child._signal_group(signal.SIGKILL)
        child._killed = True


@contextlib.contextmanager
def program(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], *, stdout: IO[Any], stderr: IO[Any]
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a program; when the block ends, ends the program and all processes that it has started.

    Args:
      folder: the program's working folder.
      environment: variables that the program gets in addition to those of this process.
      stdout, stderr: files that get what the program prints.
    """
    process = subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline_ns = clock.now_ns() + int(timeout_s * 1e9)
    while not condition() and clock.now_ns() < deadline_ns:
        clock.sleep_until_ns(clock.now_ns() + 10_000_000)
