"""Threads and forked processes that make batches; a worker that dies or hangs raises an error that names it.

Keras' own pool replaces a process that dies, and then waits for ever for the batch of that process.

Why not `multiprocessing.connection`: reading from a `Connection` has no timeout, so that each batch would need
`connection.wait` or `poll`, which make a selector for each call. Asking for a batch and reading the answer then takes
about 40 us of the parent's CPU time instead of 17, and a batch of small images is made in 330 us.

Over 400 lines: thread and process workers promise the same, and are read side by side.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
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

from unstall import forks
from unstall.pipeline import clock
from unstall.pipeline.loaders.shared_arrays import LINE_BYTES, SharedArrays
from unstall.pipeline.stages.compose import Empty

# Twice what an NFS client waits before it says that its server does not answer (nfs(5), `timeo`).
BATCH_TIMEOUT_S = 120.0
# How often the parent checks whether a worker process that does not answer still lives: its socket may stay open after
# its death, since another process that was forked at the same moment may hold the other end. Also how often a worker
# process checks whether its parent still lives.
_LOOK_S = 1.0
# A process that does not serve within this time after it was forked is killed, and another is forked. It can hang for
# ever: a lock of a C library that another thread of the parent held at that moment is never given back in the process.
_SERVES_S = 10.0
# How long a process may take to write its stacks, and to end, before it is killed.
_STACKS_S, _LEAVE_S = 2.0, 2.0
# How many batches may be asked of a worker before the first is taken: the worker makes a batch while others wait.
AHEAD = 4
# Size of a batch's number, and of an answer's length, in messages between processes.
_NUMBER_BYTES = 8
# Held while a worker's end of its socket is open in this process, so that no other worker is forked with a copy of it.
# RLock, not Lock: garbage collection may close another worker on the thread that is forking.
_FORKING = threading.RLock()

# Makes the batch of a number; makes large arrays with the function that it is given.
Make = Callable[[int, Empty], Any]


class WorkerError(RuntimeError):
    """No batch will come: a worker died or hangs, or the workers were ended.

    The first line says which worker, what happened and at which batch.
    """


class _Worker(ABC):
    """Makes one batch at a time, in the order in which its only caller asks, which may ask for `AHEAD` at once."""

    def __init__(self) -> None:
        self._waiting: deque[int] = deque()

    def ask(self, index: int) -> None:
        """Asks for a batch, and does not wait for it."""
        self._waiting.append(index)
        self._send(index)

    def answer(self, timeout_s: float, *, copy: bool) -> tuple[bool, Any]:
        """Waits for the batch that was asked for first.

        Returns:
          True and the batch, or False and the error that making it raised. Without `copy`, the batch's arrays are good
          until the worker is asked for another batch.
        Raises:
          WorkerError: if the worker died or hangs.
        """
        index = self._waiting.popleft()
        received, succeeded, value = self._receive(index, timeout_s, copy)
        if received != index:  # Ctrl-C, twice, may come between a batch and its bookkeeping
            raise WorkerError(f"Batch {received} came where batch {index} was asked for.")
        return succeeded, value

    @abstractmethod
    def _send(self, index: int) -> None: ...

    @abstractmethod
    def _receive(self, index: int, timeout_s: float, copy: bool) -> tuple[int, bool, Any]: ...

    @abstractmethod
    def close(self) -> None:
        """Tells the worker to end."""

    @abstractmethod
    def kill(self) -> None:
        """Ends the worker, if that is possible."""


class Workers:
    """A number of workers that live until they are closed; once a worker has failed, all calls raise its error.

    Args:
      make: makes a batch; a bound method, so that its object can be garbage-collected while idle workers wait.
      number: number of workers.
      processes: whether the workers are forked processes; else they are threads.
      timeout_s: how long a worker may take for a batch before it counts as hung.
      batch_bytes: the largest size of a batch's arrays. Processes hand these over in shared memory; larger ones go
        through a socket, which takes several times as long.
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
        # For `in_order`: the number of the next batch to take, and of the next batch to ask for.
        self._taken = self._asked = 0
        self._failing = threading.Lock()
        self._failed: str | None = None
        self._owner = os.getpid()
        try:
            for index in range(number):
                name = f"worker {index + 1} of {number}"
                self._workers.append(_Process(name, make, batch_bytes) if processes else _Thread(name, make))
                self._idle.put(self._workers[-1])
        except OSError:  # no memory, processes or descriptors are left
            self.close()
            raise

    def make(self, index: int) -> Any:
        """Has a batch made by an idle worker, and waits for it.

        Raises:
          WorkerError: if this worker or another died or hangs.
        """
        self._check_owner()  # first: in a forked copy no worker may ever become idle
        worker = self._idle.get()
        try:
            answer = self._run(lambda: self._ask_and_wait(worker, index))
        finally:
            self._idle.put(worker)
        return _batch_of(answer)

    def _ask_and_wait(self, worker: _Worker, index: int) -> tuple[bool, Any]:
        worker.ask(index)
        return worker.answer(self._timeout_s, copy=True)

    def in_order(self, first: int, count: int) -> Iterator[Any]:
        """Yields `count` batches from number `first` on, which the workers make ahead, in turn.

        The workers also begin with the batches after the last, so that they work on while the caller does something
        else. If the caller then asks for other batches, these are dropped.

        Only one caller at a time. It must not call `make` meanwhile, and must be done with a batch's arrays when it
        takes the next batch.

        Raises:
          WorkerError: if a worker died or hangs.
        """
        if first != self._taken:
            self._run(lambda: self._begin_at(first))
        for _ in range(count):
            yield _batch_of(self._run(self._take))

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
        """Whether the workers can make batches: none has failed, none was closed, and this process started them."""
        return self._failed is None and os.getpid() == self._owner

    def _run(self, step: Callable[[], Any]) -> Any:
        """Returns the result of a step.

        If the step fails, all workers are ended: a batch that was not taken would be taken for the next one. From then
        on the first error is raised, because later errors are about workers that were ended.
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
        """Ends all workers; kills those that do not end when they are told to."""
        if os.getpid() != self._owner:
            return  # garbage collection in a forked process, where the workers are not children
        if self._failed is None:
            self._failed = "The workers were closed."
        for worker in self._workers:
            worker.close()
        for worker in self._workers:
            worker.kill()


def _batch_of(answer: tuple[bool, Any]) -> Any:
    """Returns a batch, or raises what making it raised."""
    succeeded, value = answer
    if not succeeded:
        raise value
    return value


class _Thread(_Worker):
    """A thread. If it hangs, it cannot be ended and is left behind."""

    def __init__(self, name: str, make: Make) -> None:
        super().__init__()
        self._name = name
        self._indices: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[int, bool, Any]] = queue.SimpleQueue()
        arguments = (weakref.WeakMethod(make), self._indices, self._answers)
        self._thread = threading.Thread(target=_serve_thread, args=arguments, name=f"unstall {name}", daemon=True)
        self._thread.start()

    def _send(self, index: int) -> None:
        self._indices.put(index)

    def _receive(self, index: int, timeout_s: float, copy: bool) -> tuple[int, bool, Any]:
        try:
            return self._answers.get(timeout=timeout_s)
        except queue.Empty:
            frame = sys._current_frames().get(self._thread.ident or 0)
            stack = "".join(traceback.format_stack(frame)) if frame else ""
            raise WorkerError(_hung(f"{self._name} (a thread)", index, timeout_s, stack)) from None

    def close(self) -> None:
        self._indices.put(None)

    kill = close


def _serve_thread(
    make: weakref.WeakMethod[Make],
    indices: queue.SimpleQueue[int | None],
    answers: queue.SimpleQueue[tuple[int, bool, Any]],
) -> None:
    while (index := indices.get()) is not None:
        function = make()
        assert function is not None  # the caller that waits for the batch holds the object
        try:
            answers.put((index, True, function(index, np.empty)))
        except Exception as error:
            answers.put((index, False, error))
        except BaseException as error:  # such as SystemExit, which would end the thread without a word
            reason = f"{type(error).__name__} came when batch {index} was made: {error}"
            answers.put((index, False, RuntimeError(reason)))
        del function


class _Process(_Worker):
    """A forked process with a socket of its own, so that its death does not concern other workers.

    A bare socket, not a `multiprocessing.Pipe`, whose messages run several times as much Python code: a batch of small
    images takes a third of a millisecond, so the cost of a message matters.
    """

    def __init__(self, name: str, make: Make, batch_bytes: int) -> None:
        super().__init__()
        # Labels begin on a line of their own.
        self._shared = SharedArrays(batch_bytes + LINE_BYTES if batch_bytes else 0, places=AHEAD)
        self._stacks = tempfile.TemporaryFile()  # noqa: SIM115 - stays open as long as the process lives
        self._title, self._make = name, weakref.WeakMethod(make)
        self._fork(make)

    def _fork(self, make: Make) -> None:
        self._serves = False
        with _FORKING:
            self._socket, workers_end = socket.socketpair()
            self._socket.settimeout(_LOOK_S)
            workers_end.settimeout(None)
            _OPEN.add(self._socket)
            arguments = (workers_end, self._stacks, make, self._shared, os.getpid(), gc.isenabled())
            context = multiprocessing.get_context("fork")
            self._process = context.Process(
                target=_serve_process, args=arguments, name=f"unstall {self._title}", daemon=True
            )
            try:
                with forks.not_collecting():  # the process begins so, and keeps what it inherits
                    self._process.start()
            finally:
                workers_end.close()
        self._name = f"{self._title} (process {self._process.pid})"

    def _send(self, index: int) -> None:
        # If the process has died, `_receive` reports it.
        with contextlib.suppress(OSError):
            self._socket.send(index.to_bytes(_NUMBER_BYTES, "little", signed=True))

    def _receive(self, index: int, timeout_s: float, copy: bool) -> tuple[int, bool, Any]:
        deadline_ns = clock.now_ns() + round(timeout_s * 1e9)
        try:
            while not self._serves:
                self._wait_until_it_serves(index, deadline_ns)
            length = int.from_bytes(self._read(_NUMBER_BYTES, deadline_ns), "little")
            return self._shared.loads(self._read(length, deadline_ns), copy=copy)
        except TimeoutError:
            raise WorkerError(_hung(self._name, index, timeout_s, self._stacks_now())) from None
        except (EOFError, OSError) as error:
            raise WorkerError(self._death(index)) from error

    def _wait_until_it_serves(self, index: int, deadline_ns: int) -> None:
        """Waits for the byte that the process sends first; kills the process, and forks another, if it does not come.

        Raises:
          EOFError, OSError, TimeoutError: as `_read` does.
        """
        try:
            self._read(1, min(deadline_ns, clock.now_ns() + round(_SERVES_S * 1e9)))
            self._serves = True
        except TimeoutError:
            make = self._make()
            if make is None or clock.now_ns() > deadline_ns:
                raise
            self._process.kill()
            self._process.join(_LEAVE_S)
            self.close()
            self._fork(make)
            for waiting in (index, *self._waiting):
                self._send(waiting)

    def _read(self, length: int, deadline_ns: int) -> bytes:
        """Returns `length` bytes that the process sends.

        Raises:
          EOFError, OSError: if the process has died.
          TimeoutError: if the process lives, and has not sent the bytes at `deadline_ns`.
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
        """Says how the process ended."""
        self._process.join(_LEAVE_S)
        code = self._process.exitcode
        advice = ""
        if code is not None and code < 0:
            cause = f"was killed by signal {signal.Signals(-code).name}"
            advice = {
                signal.SIGKILL: "; most likely the machine ran out of memory. Use fewer workers, or smaller batches",
                signal.SIGSEGV: "; unstall doctor names files that crash a decoder",
                signal.SIGABRT: "; unstall doctor names files that crash a decoder",
            }.get(signal.Signals(-code), "")
        else:
            cause = "closed its socket" if code is None else f"ended with exit code {code}"
        return f"{self._name} {cause} when it was to make batch {index}{advice}."

    def _stacks_now(self) -> str:
        """Returns the calls of a process that hangs. Its signal handler is C code, since Python code may never run."""
        if self._process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGUSR1)
        self._process.join(_STACKS_S)
        self._stacks.seek(0)
        # The thread that makes batches is the oldest: it is listed last, with its newest call first.
        return self._stacks.read().decode(errors="replace").rpartition("hread 0x")[2].partition("\n")[2]

    def close(self) -> None:
        with _FORKING:
            _OPEN.discard(self._socket)
            self._socket.close()

    def kill(self) -> None:
        # A process that was told to end does so at once, unless it hangs.
        if self._socket.fileno() < 0:
            self._process.join(_LEAVE_S)
        self._process.kill()
        self._process.join(_LEAVE_S)


# This process' ends of the sockets to all workers. A new worker closes its copies of them: while it held them, no
# worker's socket would be closed by the death of the parent.
_OPEN: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _serve_process(
    connection: socket.socket, stacks: IO[bytes], make: Make, shared: SharedArrays, parent: int, collects: bool
) -> None:
    gc.freeze()
    if collects:
        gc.enable()
    for parents_end in list(_OPEN):
        parents_end.close()
    for number in (signal.SIGINT, signal.SIGHUP):  # the parent gets them, too, and ends this process
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with contextlib.suppress(OSError):
        connection.sendall(b"\0")  # it serves
        for turn in itertools.count():
            if not (message := connection.recv(_NUMBER_BYTES, socket.MSG_WAITALL)):
                return
            index = int.from_bytes(message, "little", signed=True)
            shared.turn_to(turn)
            try:
                reply = shared.dumps(index, True, make(index, shared.empty))
            except Exception as error:
                reply = shared.dumps(index, False, _sendable(error))
            connection.sendall(len(reply).to_bytes(_NUMBER_BYTES, "little") + reply)


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent has ended, in whatever way, even if the main thread hangs."""
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(_LOOK_S)
    os._exit(1)


def _sendable(error: Exception) -> Exception:
    """Returns the error with its traceback as a note; an error that cannot be pickled becomes a `RuntimeError`."""
    try:
        pickle.loads(pickle.dumps(error, protocol=5))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note("in a worker process:\n" + traceback.format_exc())
    return error


def _hung(name: str, index: int, timeout_s: float, stacks: str) -> str:
    return f"{name} gave no batch {index} within {timeout_s:g} s: it hangs. Its calls:\n{stacks.rstrip()}"
