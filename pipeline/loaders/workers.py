"""Workers that make batches, and are watched: one that dies or hangs is an error that names it.

Keras' own pool puts a new process in the place of one that dies, and waits for ever for the batch that went with it.

Over 400 lines: threads and processes keep the same promises, which are read side by side.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import multiprocessing
import os
import pickle
import queue
import signal
import socket
import sys
import tempfile
import threading
import traceback
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np

from pipeline import clock
from pipeline.loaders.shared_arrays import SharedArrays
from pipeline.stages.compose import Empty

# Twice what an NFS client waits before it says that its server does not answer (nfs(5), `timeo`).
BATCH_TIMEOUT_S = 120.0
# How often a process that does not answer is asked whether it lives: another one that was forked at the same moment may
# hold its end of the socket open. And how often it looks whether its parent lives.
_LOOK_S = 1.0
# To write its stacks, and to leave, before it is killed.
_STACKS_S, _LEAVE_S = 2.0, 2.0
# Batches that each worker may be ahead of who takes them: it makes one while another waits.
AHEAD = 4
# Of a batch's number and of an answer's length, between processes.
_NUMBER_BYTES = 8
# Nobody forks while the other end of a worker's socket is open in this process. Again by the same thread, whose garbage
# may be collected meanwhile, and with it other workers.
_FORKING = threading.RLock()

# Makes a batch by its number, its large arrays by the function that it is given.
Make = Callable[[int, Empty], Any]


class WorkerError(RuntimeError):
    """No batch will come: a worker died or hangs, and the first line says which, how and at what; or all were ended."""


class _Worker(ABC):
    """Makes one batch at a time, in the order in which one caller asks for them, at most `AHEAD` of them."""

    def __init__(self) -> None:
        self._waiting: deque[int] = deque()

    def ask(self, index: int) -> None:
        """Has a batch made."""
        self._waiting.append(index)
        self._send(index)

    def answer(self, timeout_s: float, *, copy: bool) -> tuple[bool, Any]:
        """Returns whether the batch that was asked for first was made, and it or the error; or raises `WorkerError`.

        Without a copy, a batch's arrays are good until the worker is asked for another.
        """
        index = self._waiting.popleft()
        found, made, value = self._receive(index, timeout_s, copy)
        if found != index:  # two stops by the user, one after the other, may come between a batch and its bookkeeping
            raise WorkerError(f"Batch {found} came where batch {index} was asked for.")
        return made, value

    @abstractmethod
    def _send(self, index: int) -> None: ...

    @abstractmethod
    def _receive(self, index: int, timeout_s: float, copy: bool) -> tuple[int, bool, Any]: ...

    @abstractmethod
    def close(self) -> None:
        """Tells it to leave."""

    @abstractmethod
    def kill(self) -> None:
        """Ends it, if that can be done."""


class Workers:
    """A number of workers, alive until closed; once one has failed, all fail with its error.

    Args:
      make: makes a batch; a bound method, that its object may be collected while idle workers wait.
      number: of workers.
      processes: whether they are forked processes, or threads.
      timeout_s: for one batch; then the worker counts as hung.
      batch_bytes: of the arrays of a batch, at most: a process gives them through memory that it shares with this one.
        Larger ones go through its socket, which takes several times as long.
    """

    def __init__(
        self,
        make: Make,
        number: int,
        *,
        processes: bool,
        timeout_s: float = BATCH_TIMEOUT_S,
        batch_bytes: int = 0,
    ) -> None:
        self._timeout_s = timeout_s
        self._workers: list[_Worker] = []
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        # Of batches that are made in order: the number of the next to be taken, and of the next to be asked for.
        self._taken = self._asked = 0
        self._failing = threading.Lock()
        self._failed: str | None = None
        self._owner = os.getpid()
        try:
            for index in range(number):
                name = f"worker {index + 1} of {number}"
                self._workers.append(_Process(name, make, batch_bytes) if processes else _Thread(name, make))
                self._idle.put(self._workers[-1])
        except OSError:  # no memory, processes or descriptors
            self.close()
            raise

    def make(self, index: int) -> Any:
        """Has a batch made by an idle worker, and waits for it.

        Raises:
          WorkerError: if a worker died or hung, this or another.
        """
        self._check_owner()  # in a forked copy no worker may ever be idle
        worker = self._idle.get()
        try:
            answer = self._whole(lambda: self._asked_now(worker, index))
        finally:
            self._idle.put(worker)
        return _made(answer)

    def _asked_now(self, worker: _Worker, index: int) -> tuple[bool, Any]:
        worker.ask(index)
        return worker.answer(self._timeout_s, copy=True)

    def in_order(self, first: int, count: int) -> Iterator[Any]:
        """Yields `count` batches from number `first` on, made by all workers in turn, some ahead.

        Those behind the last one too, so that there are some when the caller comes back for them: what it does in
        between takes no time from the workers. Where it asks for others, what was asked for is taken, and dropped.

        One caller at a time, who asks for no other batch meanwhile, and is done with a batch's arrays when it asks for
        the next one.

        Raises:
          WorkerError: if a worker died or hung.
        """
        if first != self._taken:
            self._whole(lambda: self._begin_at(first))
        for _ in range(count):
            yield _made(self._whole(self._take))

    def _begin_at(self, first: int) -> None:
        while self._taken < self._asked:
            self._answer()
        self._taken = self._asked = first

    def _take(self) -> tuple[bool, Any]:
        while self._asked < self._taken + AHEAD * len(self._workers):
            self._workers[self._asked % len(self._workers)].ask(self._asked)
            self._asked += 1
        return self._answer()

    def _answer(self) -> tuple[bool, Any]:
        answer = self._workers[self._taken % len(self._workers)].answer(self._timeout_s, copy=False)
        self._taken += 1
        return answer

    @property
    def usable(self) -> bool:
        """Whether they can make batches: none has failed, they were not closed, and this process started them."""
        return self._failed is None and os.getpid() == self._owner

    def _whole(self, step: Callable[[], Any]) -> Any:
        """Returns what a step gives; ends all workers if it fails: a batch that nobody took would pass for the next.

        The first error is the one that is told: those behind it are about workers that were ended because of it.
        """
        self._check_owner()
        if self._failed is None:
            try:
                return step()
            except WorkerError as error:
                self._fail(str(error))
            except BaseException as error:  # such as Ctrl-C
                self._fail(f"{type(error).__name__} came while a batch was waited for.")
                raise
        raise WorkerError(self._failed)

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise WorkerError("These workers belong to the process that this one was forked from.")

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
        if self._failed is None:
            self._failed = "The workers were closed."
        for worker in self._workers:
            worker.close()
        for worker in self._workers:
            worker.kill()


def _made(answer: tuple[bool, Any]) -> Any:
    """Returns a batch, or raises what making it raised."""
    made, value = answer
    if not made:
        raise value
    return value


class _Thread(_Worker):
    """A thread; one that hangs cannot be ended and is left behind."""

    def __init__(self, name: str, make: Make) -> None:
        super().__init__()
        self._name = name
        self._asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[tuple[int, bool, Any]] = queue.SimpleQueue()
        arguments = (weakref.WeakMethod(make), self._asked, self._made)
        self._thread = threading.Thread(target=_serve_thread, args=arguments, name=f"unstall {name}", daemon=True)
        self._thread.start()

    def _send(self, index: int) -> None:
        self._asked.put(index)

    def _receive(self, index: int, timeout_s: float, copy: bool) -> tuple[int, bool, Any]:
        try:
            return self._made.get(timeout=timeout_s)
        except queue.Empty:
            frame = sys._current_frames().get(self._thread.ident or 0)
            stack = "".join(traceback.format_stack(frame)) if frame else ""
            raise WorkerError(_hung(f"{self._name} (a thread)", index, timeout_s, stack)) from None

    def close(self) -> None:
        self._asked.put(None)

    kill = close


def _serve_thread(
    make: weakref.WeakMethod[Make], asked: queue.SimpleQueue[int | None], made: queue.SimpleQueue[tuple[int, bool, Any]]
) -> None:
    while (index := asked.get()) is not None:
        function = make()
        assert function is not None  # who asks for a batch holds what makes it
        try:
            made.put((index, True, function(index, np.empty)))
        except Exception as error:
            made.put((index, False, error))
        except BaseException as error:  # such as an exit, of which nobody else would hear
            made.put((index, False, RuntimeError(f"{type(error).__name__} came when batch {index} was made: {error}")))
        del function


class _Process(_Worker):
    """A forked process, with a socket of its own: the death of one is not the others' matter.

    A batch of small images is made in a third of a millisecond: what is done for each message shows. So this is a bare
    socket, not a `multiprocessing.Pipe`, whose messages take several times as much of Python.
    """

    def __init__(self, name: str, make: Make, batch_bytes: int) -> None:
        super().__init__()
        self._shared = SharedArrays(batch_bytes, places=AHEAD)
        self._stacks = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        with _FORKING:
            self._socket, theirs = socket.socketpair()
            self._socket.settimeout(_LOOK_S)
            theirs.settimeout(None)
            _OPEN.add(self._socket)
            arguments = (theirs, self._stacks, make, self._shared, os.getpid())
            context = multiprocessing.get_context("fork")
            self._process = context.Process(target=_serve_process, args=arguments, name=f"unstall {name}", daemon=True)
            try:
                self._process.start()
            finally:
                theirs.close()
        self._name = f"{name} (process {self._process.pid})"

    def _send(self, index: int) -> None:
        # One that has gone is found when it is to answer.
        with contextlib.suppress(OSError):
            self._socket.send(index.to_bytes(_NUMBER_BYTES, "little", signed=True))

    def _receive(self, index: int, timeout_s: float, copy: bool) -> tuple[int, bool, Any]:
        deadline_ns = clock.now_ns() + round(timeout_s * 1e9)
        try:
            length = int.from_bytes(self._read(_NUMBER_BYTES, deadline_ns), "little")
            return self._shared.loads(self._read(length, deadline_ns), copy=copy)
        except TimeoutError:
            raise WorkerError(_hung(self._name, index, timeout_s, self._stacks_now())) from None
        except (EOFError, OSError) as error:
            raise WorkerError(self._death(index)) from error

    def _read(self, length: int, deadline_ns: int) -> bytes:
        """Returns so many bytes of what the process sends.

        Raises:
          EOFError, OSError: if it is gone.
          TimeoutError: if it is there, and they do not come in time.
        """
        data = b""
        while len(data) < length:
            try:
                part = self._socket.recv(length - len(data))
            except TimeoutError:
                if self._process.exitcode is not None:
                    raise EOFError from None
                if clock.now_ns() > deadline_ns:
                    raise
                continue
            if not part:
                raise EOFError
            data = data + part if data else part
        return data

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
            cause = "closed its socket" if code is None else f"ended with exit code {code}"
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
            _OPEN.discard(self._socket)
            self._socket.close()

    def kill(self) -> None:
        # One that was told to leave does so at once, unless it hangs.
        if self._socket.fileno() < 0:
            self._process.join(_LEAVE_S)
        self._process.kill()
        self._process.join(_LEAVE_S)


# This process' ends of all sockets to workers, which a new worker has to close: else none would see its parent die.
_OPEN: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _serve_process(ours: socket.socket, stacks: IO[bytes], make: Make, shared: SharedArrays, parent: int) -> None:
    for other in list(_OPEN):
        other.close()
    for number in (signal.SIGINT, signal.SIGHUP):  # the parent decides, and ends this process
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with contextlib.suppress(OSError):
        for turn in itertools.count():
            if not (asked := ours.recv(_NUMBER_BYTES, socket.MSG_WAITALL)):
                return
            index = int.from_bytes(asked, "little", signed=True)
            shared.turn_to(turn)
            try:
                reply = shared.dumps(index, True, make(index, shared.empty))
            except Exception as error:
                reply = shared.dumps(index, False, _sendable(error))
            ours.sendall(len(reply).to_bytes(_NUMBER_BYTES, "little") + reply)


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent, however that ended, even if the main thread hangs."""
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(_LOOK_S)
    os._exit(1)


def _sendable(error: Exception) -> Exception:
    """Returns the error, or one that says the same if it cannot be sent; with its traceback as a note."""
    try:
        pickle.loads(pickle.dumps(error, protocol=5))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note("in a worker process:\n" + traceback.format_exc())
    return error


def _hung(who: str, index: int, timeout_s: float, stacks: str) -> str:
    return f"{who} gave no batch {index} within {timeout_s:g} s: it hangs. Its calls:\n{stacks.rstrip()}"
