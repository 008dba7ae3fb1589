"""Runs a script in a child process, so that a trial of remedies cannot change how the script ended.

A trial can crash, hang, or run out of memory. The parent imports no framework. It passes signals on, waits, and ends as
the script ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

import psutil

from unstall.profiles import clock

# Signals that another process may send to the parent, for the script.
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# How often the parent looks whether the child has told it something.
_LOOK_S = 0.5
# How long SIGTERM may take to end the processes that a hung trial has started.
_LEAVE_S = 2.0
_PR_SET_PDEATHSIG = 1


class Guard:
    """Tells the parent how the script ended, from the moment at which code of the user's may run again.

    Args:
      descriptor: of the pipe to the parent.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fix(self, code: int, limit_s: float) -> None:
        """Fixes the exit code of the script. Whatever happens from now on must end within `limit_s`."""
        self._tell({"code": code, "limit_s": limit_s})

    def release(self) -> None:
        """Notes that the trial has ended: there is no limit any more."""
        self._tell({"limit_s": None})

    def _tell(self, message: dict[str, object]) -> None:
        with suppress(OSError):
            os.write(self._descriptor, f"{json.dumps(message)}\n".encode())


def guarded(run: Callable[[Guard | None], int], say: Callable[[str], object]) -> int:
    """Runs `run` in a child process and returns its exit code; in this process where none can be forked.

    The child returns from this function as well, with the code that `run` returned. If the script is ended by a signal,
    so is the parent. From `Guard.fix` on, the exit code is the one that was fixed.

    Args:
      run: runs the script, and returns its exit code.
      say: prints a line.
    """
    if not hasattr(os, "fork") or not hasattr(signal, "sigtimedwait"):
        return run(None)
    reader, writer = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    waited_for = {signal.SIGCHLD, *_PASSED_ON}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _die_with(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return run(Guard(writer))
    os.close(writer)
    os.set_blocking(reader, False)
    return _Waiting(child, reader, waited_for, say).wait()


def _die_with(parent: int) -> None:
    """Has this process killed when its parent ends, which could no longer pass on how the script ended. Linux only."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


class _Waiting:
    """The parent, until the child has ended."""

    def __init__(self, child: int, reader: int, waited_for: set[signal.Signals], say: Callable[[str], object]) -> None:
        self._child = child
        self._reader = reader
        self._waited_for = waited_for
        self._say = say
        self._text = b""
        self._code: int | None = None
        self._until_ns: int | None = None
        self._limit_s = 0.0

    def wait(self) -> int:
        while True:
            received = signal.sigtimedwait(self._waited_for, _LOOK_S)
            self._read()
            # A terminal sends its signals to the child as well: only those that a process has sent are passed on.
            if received is not None and received.si_signo in _PASSED_ON and received.si_code <= 0:
                with suppress(ProcessLookupError):
                    os.kill(self._child, received.si_signo)
            ended, status = os.waitpid(self._child, os.WNOHANG)
            if ended:
                self._read()
                return self._end(status)
            if self._until_ns is not None and clock.now_ns() > self._until_ns:
                self._say(f"the trial of remedies did not end within {self._limit_s:.0f} s, and was ended")
                self._kill()
                os.waitpid(self._child, 0)
                assert self._code is not None
                return self._code

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while chunk := os.read(self._reader, 4096):
                self._text += chunk
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._code = message.get("code", self._code)
            limit_s = message["limit_s"]
            self._until_ns = None if limit_s is None else clock.now_ns() + int(limit_s * 1e9)
            self._limit_s = limit_s or 0.0

    def _end(self, status: int) -> int:
        """Returns the exit code of the script; ends this process by the signal that ended the script."""
        code = os.waitstatus_to_exitcode(status)
        if self._code is not None:
            if code < 0 and self._until_ns is not None:  # later the trial had ended, and its report was printed
                name = signal.Signals(-code).name
                self._say(f"the trial of remedies was ended by {name}; what the script did is not touched by that")
            return self._code
        if code >= 0:
            return code
        with suppress(AttributeError, ValueError, OSError, psutil.Error):
            psutil.Process().rlimit(psutil.RLIMIT_CORE, (0, 0))  # the child has left a core file, if one is wanted
        with suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
        return 128 - code

    def _kill(self) -> None:
        """Ends the child and all processes that it has started."""
        with suppress(psutil.Error):
            process = psutil.Process(self._child)
            workers = process.children(recursive=True)
            process.kill()
            for worker in workers:
                with suppress(psutil.Error):
                    worker.terminate()
            until_ns = clock.now_ns() + int(_LEAVE_S * 1e9)
            while any(map(_runs, workers)) and clock.now_ns() < until_ns:
                clock.sleep_until_ns(clock.now_ns() + 10_000_000)
            for worker in workers:
                with suppress(psutil.Error):
                    worker.kill()


def _runs(process: psutil.Process) -> bool:
    """Whether a process has not ended. A zombie has; its parent has not asked yet how."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
