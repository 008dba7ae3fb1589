"""Workers that make batches, and are watched: one that dies or hangs is an error that names it.

Keras' own pool puts a new process in the place of one that dies, and waits for ever for the batch that went with it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import IO, Any, Protocol

# Twice what an NFS client waits before it says that its server does not answer (nfs(5), `timeo`).
BATCH_TIMEOUT_S = 120.0
# How often a process is asked whether it lives, beside its sentinel: another process that was forked at the same moment
# may hold that open. And how often it looks whether its parent lives.
_LOOK_S = 1.0
# To write its stacks, and to leave, before it is killed.
_STACKS_S, _LEAVE_S = 2.0, 2.0
# Nobody forks while the ends of another's pipe are open in this process.
_FORKING = threading.Lock()

Make = Callable[[int], Any]


class WorkerError(RuntimeError):
    """A worker that makes batches died or hangs; the first line says which, how and at what."""


class _Worker(Protocol):
    """Makes one batch at a time, for one caller at a time."""

    def make(self, index: int, timeout_s: float) -> Any:
        """Returns a batch, or raises what making it raised, or `WorkerError`."""

    def close(self) -> None:
        """Tells it to leave."""

    def kill(self) -> None:
        """Ends it, if that can be done."""


class Workers:
    """A number of workers, alive until closed; once one has failed, all fail with its error.

    Args:
      make: makes a batch; a bound method, that its object may be collected while idle workers wait.
      number: of workers.
      processes: whether they are forked processes, or threads.
      timeout_s: for one batch; then the worker counts as hung.
    """

    def __init__(self, make: Make, number: int, *, processes: bool, timeout_s: float = BATCH_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._workers: list[_Worker] = []
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._failing = threading.Lock()
        self._failed: str | None = None
        self._owner = os.getpid()
        try:
            for index in range(number):
                name = f"worker {index + 1} of {number}"
                self._workers.append(_Process(name, make) if processes else _Thread(name, make))
                self._idle.put(self._workers[-1])
        except OSError:  # no memory, processes or descriptors
            self.close()
            raise

    def make(self, index: int) -> Any:
        """Has a batch made by an idle worker, and waits for it.

        Raises:
          WorkerError: if a worker died or hung, this or another.
        """
        worker = self._idle.get()
        try:
            if self._failed is None:
                return worker.make(index, self._timeout_s)
        except WorkerError as error:
            self._fail(str(error))
        finally:
            self._idle.put(worker)
        # The first error: those behind it are about workers that were ended because of it.
        raise WorkerError(self._failed)

    def _fail(self, reason: str) -> None:
        with self._failing:
            if self._failed is None:
                self._failed = reason
                for worker in self._workers:
                    worker.kill()

    def close(self) -> None:
        """Ends them all; those that do not leave are killed."""
        if os.getpid() != self._owner:
            return  # a forked copy, whose garbage is collected
        for worker in self._workers:
            worker.close()
        for worker in self._workers:
            worker.kill()


class _Thread:
    """A thread; one that hangs cannot be ended and is left behind."""

    def __init__(self, name: str, make: Make) -> None:
        self._name = name
        self._asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        arguments = (weakref.WeakMethod(make), self._asked, self._made)
        self._thread = threading.Thread(target=_serve_thread, args=arguments, name=f"unstall {name}", daemon=True)
        self._thread.start()

    def make(self, index: int, timeout_s: float) -> Any:
        self._asked.put(index)
        try:
            made, value = self._made.get(timeout=timeout_s)
        except queue.Empty:
            frame = sys._current_frames().get(self._thread.ident or 0)
            stack = "".join(traceback.format_stack(frame)) if frame else ""
            raise WorkerError(_hung(f"{self._name} (a thread)", index, timeout_s, stack)) from None
        if not made:
            raise value
        return value

    def close(self) -> None:
        self._asked.put(None)

    kill = close


def _serve_thread(
    make: weakref.WeakMethod[Make], asked: queue.SimpleQueue[int | None], made: queue.SimpleQueue[tuple[bool, Any]]
) -> None:
    while (index := asked.get()) is not None:
        function = make()
        assert function is not None  # who asks for a batch holds what makes it
        try:
            made.put((True, function(index)))
        except Exception as error:
            made.put((False, error))
        del function


class _Process:
    """A forked process, with a pipe of its own: the death of one is not the others' matter."""

    def __init__(self, name: str, make: Make) -> None:
        context = multiprocessing.get_context("fork")
        self._stacks = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        with _FORKING:
            self._connection, theirs = context.Pipe()
            _OPEN.add(self._connection)
            arguments = (theirs, self._stacks, make, os.getpid())
            self._process = context.Process(target=_serve_process, args=arguments, name=f"unstall {name}", daemon=True)
            try:
                self._process.start()
            finally:
                theirs.close()
        self._name = f"{name} (process {self._process.pid})"

    def make(self, index: int, timeout_s: float) -> Any:
        try:
            self._connection.send(index)
            if not self._answered(timeout_s):
                raise WorkerError(_hung(self._name, index, timeout_s, self._stacks_now()))
            made, value = self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerError(self._death(index)) from error
        if not made:
            raise value
        return value

    def _answered(self, timeout_s: float) -> bool:
        """Waits until there is an answer or the process is gone; False if neither comes."""
        left_s = timeout_s
        while left_s > 0:
            if multiprocessing.connection.wait([self._connection, self._process.sentinel], min(left_s, _LOOK_S)):
                return True
            if self._process.exitcode is not None:
                return True
            left_s -= _LOOK_S
        return False

    def _death(self, index: int) -> str:
        self._process.join(_LEAVE_S)
        code = self._process.exitcode
        advice = ""
        if code is not None and code < 0:
            cause = f"was killed by signal {signal.Signals(-code).name}"
            advice = {
                signal.SIGKILL: "; most likely the machine ran out of memory. Use fewer workers, or smaller batches",
                signal.SIGSEGV: "; python -m benchmarks.doctor names files that crash a decoder",
                signal.SIGABRT: "; python -m benchmarks.doctor names files that crash a decoder",
            }.get(signal.Signals(-code), "")
        else:
            cause = "closed its pipe" if code is None else f"ended with exit code {code}"
        return f"{self._name} {cause} when it was to make batch {index}{advice}."

    def _stacks_now(self) -> str:
        """Returns the stack of a process that hangs, from its signal handler in C: Python may not come to it."""
        if self._process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGUSR1)
        self._process.join(_STACKS_S)
        self._stacks.seek(0)
        # The thread that makes batches is the oldest: listed last, the newest call first.
        return self._stacks.read().decode(errors="replace").rpartition("hread 0x")[2].partition("\n")[2]

    def close(self) -> None:
        with _FORKING:
            _OPEN.discard(self._connection)
            self._connection.close()

    def kill(self) -> None:
        # One that was told to leave does so at once, unless it hangs.
        if self._connection.closed:
            self._process.join(_LEAVE_S)
        self._process.kill()
        self._process.join(_LEAVE_S)


# This process' ends of all pipes to workers, which a new worker has to close: else none would see its parent die.
_OPEN: weakref.WeakSet[Connection] = weakref.WeakSet()


def _serve_process(connection: Connection, stacks: IO[bytes], make: Make, parent: int) -> None:
    for other in list(_OPEN):
        other.close()
    for number in (signal.SIGINT, signal.SIGHUP):  # the parent decides, and ends this process
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            index = connection.recv()
            try:
                reply = (True, make(index))
            except Exception as error:
                reply = (False, _sendable(error))
            connection.send(reply)


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent, however that ended, even if the main thread hangs."""
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(_LOOK_S)
    os._exit(1)


def _sendable(error: Exception) -> Exception:
    """Returns the error, or one that says the same if it cannot be sent; with its traceback as a note."""
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note("in a worker process:\n" + traceback.format_exc())
    return error


def _hung(who: str, index: int, timeout_s: float, stacks: str) -> str:
    return f"{who} gave no batch {index} within {timeout_s:g} s: it hangs. Its calls:\n{stacks.rstrip()}"
