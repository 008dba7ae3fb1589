"""Workers that are killed, crash or hang: an error that names them, soon, and nobody left behind.

Long because each way in which a worker can end has its case, and all share the workers that are started here.
"""

import gc
import mmap
import multiprocessing
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from tests import PROJECT_ROOT
from tests.checks import GONE_S, assert_gone, children, have_ended
from tests.planted import ERROR_S, crash
from unstall.pipeline.loaders import workers as workers_module
from unstall.pipeline.loaders.workers import AHEAD, WorkerError, Workers
from unstall.pipeline.stages.compose import Empty


class Maker:
    """Makes a batch of numbers; some numbers are told to fail."""

    def __init__(self, in_place: bool = False, **ways: str) -> None:
        self.in_place, self.ways = in_place, ways

    def make(self, index: int, empty: Empty = np.empty) -> np.ndarray:
        if f"at{index}" in self.ways:
            crash(self.ways[f"at{index}"])
        if index < 0:
            raise ValueError(f"`index` must be at least 0. Received: index={index}.")
        batch = (empty if self.in_place else np.empty)((6, 4), np.int64)
        batch[:] = index
        return batch


class TwoPartsError(Exception):
    """Cannot be sent: it is pickled by its one argument, and takes two."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


@pytest.fixture
def started():
    """Starts workers, and closes them."""
    every = []

    def start(
        maker: Maker, number: int = 1, *, processes: bool = True, timeout_s: float = 30.0, batch_bytes: int = 0
    ) -> Workers:
        every.append(Workers(maker.make, number, processes=processes, timeout_s=timeout_s, batch_bytes=batch_bytes))
        return every[-1]

    yield start
    for workers in every:
        workers.close()


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits shorter for a process that can neither say where it is nor end."""
    monkeypatch.setattr(workers_module, "_STACKS_S", 0.2)
    monkeypatch.setattr(workers_module, "_LEAVE_S", 0.2)


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_batches_are_made_and_errors_are_raised_as_they_are(processes, started):
    maker = Maker()
    workers = started(maker, 2, processes=processes)
    for index in (3, 1, 2):
        np.testing.assert_array_equal(workers.make(index), maker.make(index))
    with pytest.raises(ValueError, match=r"^`index` must be at least 0. Received: index=-1\."):
        workers.make(-1)
    assert workers.make(7)[0, 0] == 7


# None; too few; all; and for two batches.
@pytest.mark.parametrize("batch_bytes", [0, 64, 6 * 4 * 8, 400])
@pytest.mark.parametrize("in_place", [False, True])
def test_arrays_of_a_process_arrive_whole_and_are_the_callers(in_place, batch_bytes, started):
    maker = Maker(in_place=in_place)
    workers = started(maker, batch_bytes=batch_bytes)
    batches = [workers.make(index) for index in range(6)]
    batches[0][:] = -1
    assert [int(batch[0, 0]) for batch in batches] == [-1, 1, 2, 3, 4, 5]
    for index in range(1, 6):
        np.testing.assert_array_equal(batches[index], maker.make(index))


class ImagesAndLabels:
    """Makes batches whose images end in the middle of a line."""

    def make(self, index: int, empty: Empty = np.empty) -> tuple[np.ndarray, np.ndarray]:
        images = empty((65,), np.uint8)
        images[:] = index
        return images, np.full(15, index, np.int32)


def test_images_and_labels_of_the_size_that_was_told_find_room_in_shared_memory(started):
    workers = started(ImagesAndLabels(), batch_bytes=65 + 15 * 4)
    for index, batch in enumerate(workers.in_order(0, 6)):
        assert [(part.tolist(), type(part.base)) for part in batch] == [
            ([index] * 65, mmap.mmap),
            ([index] * 15, mmap.mmap),
        ]


def test_garbage_that_is_collected_while_another_worker_starts_waits_for_nobody():
    code = (
        "import gc\n"
        "from unstall.pipeline.loaders import workers\n"
        "class Maker:\n"
        "    def make(self, index, empty): return index\n"
        "    def __init__(self):\n"
        "        self.me, self.crew = self, workers.Workers(self.make, 1, processes=True)\n"
        "        self.end = workers.weakref.finalize(self, self.crew.close)\n"
        "class Collecting(workers.weakref.WeakSet):\n"
        "    def add(self, item): gc.collect(); super().add(item)\n"
        "Maker()\n"
        "workers._OPEN = Collecting()\n"
        "maker = Maker()\n"
        "print(maker.crew.make(7))\n"
        "maker.crew.close()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("7\n", "")


class Collector:
    def make(self, index: int, empty: Empty = np.empty) -> bool:
        gc.collect()
        return gc.isenabled()


class EndsInItsProcessOnly:
    """Garbage whose end waits for ever in another process than its own, as that of an iterator of tf.data does."""

    def __init__(self) -> None:
        self.itself, self._owner = self, os.getpid()

    def __del__(self) -> None:
        while os.getpid() != self._owner:
            time.sleep(0.1)


@pytest.mark.parametrize("collects", [False, True])
def test_a_worker_collects_as_its_parent_does_but_not_the_garbage_of_its_parent(collects, started):
    (gc.enable if collects else gc.disable)()
    try:
        EndsInItsProcessOnly()
        assert started(Collector(), timeout_s=60.0).make(3) is collects is gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_batches_come_in_the_order_of_their_numbers(processes, number, started):
    maker = Maker(in_place=True)
    workers = started(maker, number, processes=processes, batch_bytes=200)
    first = 0
    for count in (0, 1, 2, 20):
        assert taken(workers, first, count) == list(range(first, first + count))
        first += count
    assert taken(workers, first + 5, 3) == list(range(first + 5, first + 8))
    for batch in workers.in_order(100, 20):
        if batch[0, 0] == 103:
            break
    for begin in (104, 120, 3):  # in what was asked for, behind it, before it
        assert taken(workers, begin, 7) == list(range(begin, begin + 7))


def taken(workers: Workers, first: int, count: int) -> list[int]:
    return [int(batch[0, 0]) for batch in workers.in_order(first, count)]


def test_another_batch_than_was_asked_for_is_no_batch(started):
    maker = Maker()
    workers = started(maker)
    batches = workers.in_order(0, 5)
    assert next(batches)[0, 0] == 0
    workers._workers[0]._waiting.popleft()  # as if a stop had come behind it
    with pytest.raises(WorkerError, match=r"^Batch 1 came where batch 2 was asked for\."):
        next(batches)
    assert not workers.usable


def test_an_error_in_order_comes_in_its_turn_and_the_workers_go_on(started):
    class Late(Maker):
        def make(self, index, empty):
            return super().make(index if index != 3 else -1)

    maker = Late()
    workers = started(maker, 2)
    batches = workers.in_order(1, 5)
    assert [int(next(batches)[0, 0]) for _ in range(2)] == [1, 2]
    with pytest.raises(ValueError, match="Received: index=-1"):
        next(batches)
    assert taken(workers, 8, 2) == [8, 9]


def test_a_death_in_order_is_named(started):
    maker = Maker(at3="SIGKILL")
    workers = started(maker, 2)
    batches = workers.in_order(0, 8)
    assert [int(next(batches)[0, 0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(WorkerError, match=r"worker 2 of 2 \(process \d+\) was killed by signal SIGKILL .* batch 3;"):
        next(batches)


def test_an_error_of_a_process_says_where_it_was_raised(started):
    with pytest.raises(ValueError) as caught:
        started(maker := Maker()).make(-1)
    assert maker
    assert "in make\n" in caught.value.__notes__[0]


def test_an_error_that_cannot_be_sent_says_the_same(started):
    class Odd(Maker):
        def make(self, index, empty):
            raise TwoPartsError("this", "that")

    maker = Odd()
    with pytest.raises(RuntimeError, match="^TwoPartsError: this and that"):
        started(maker).make(0)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("SIGKILL", "was killed by signal SIGKILL when it was to make batch 2; most likely the machine ran out of mem"),
        ("SIGSEGV", "was killed by signal SIGSEGV when it was to make batch 2; unstall doctor names"),
        ("SIGABRT", "was killed by signal SIGABRT when it was to make batch 2; unstall doctor names"),
        ("SIGTERM", "was killed by signal SIGTERM when it was to make batch 2."),
        ("exit", "ended with exit code 3 when it was to make batch 2."),
    ],
)
def test_every_death_is_named(how, message, started):
    maker = Maker(at2=how)
    workers = started(maker)
    workers.make(1)
    with pytest.raises(WorkerError, match=rf"^worker 1 of 1 \(process \d+\) {message}"):
        workers.make(2)


def test_an_exit_in_a_thread_is_heard_of_at_once(started):
    class Leaving(Maker):
        def make(self, index: int, empty: Empty = np.empty) -> np.ndarray:
            raise SystemExit("no licence")

    maker = Leaving()
    workers = started(maker, processes=False)
    for index in (3, 4):  # the thread is still there
        with pytest.raises(RuntimeError, match=f"^SystemExit came when batch {index} was made: no licence$"):
            workers.make(index)


def test_a_death_is_named_where_another_process_holds_the_socket_open(started):
    """One that somebody forks while a worker starts: its end of the socket is never closed, so that no end is read."""
    maker = Maker()
    workers = started(maker)
    worker = workers._workers[0]
    ours, theirs = socket.socketpair()
    ours.settimeout(worker._socket.gettimeout())
    worker._socket.close()
    worker._socket = ours
    os.kill(worker._process.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match="was killed by signal SIGKILL when it was to make batch 2"):
        workers.make(2)
    theirs.close()


def test_a_forked_copy_is_told_so_while_all_workers_are_busy(started):
    maker = Maker()
    workers = started(maker)
    workers._idle.get()  # as if it made a batch
    workers._owner = -1  # as in a forked process
    with pytest.raises(WorkerError, match="belong to the process that this one was forked from"):
        workers.make(0)
    workers._owner = os.getpid()


def test_once_one_has_failed_all_say_so(started):
    maker = Maker(at2="SIGKILL", at3="hang")
    workers = started(maker, 2)
    messages = []

    def ask(index):
        with pytest.raises(WorkerError) as caught:
            workers.make(index)
        messages.append(str(caught.value))

    waiting = threading.Thread(target=ask, args=(3,))
    waiting.start()
    ask(2)
    waiting.join(ERROR_S)
    ask(1)
    assert len(messages) == 3
    assert len(set(messages)) == 1
    assert "make batch 2" in messages[0]


def test_one_that_is_killed_while_it_idles_is_named_when_it_is_asked(started):
    before = children()
    maker = Maker()
    workers = started(maker)
    (process,) = children() - before
    process.kill()
    with pytest.raises(WorkerError, match=rf"worker 1 of 1 \(process {process.pid}\) was killed by signal SIGKILL"):
        workers.make(0)


def test_a_worker_that_is_stopped_counts_as_hung(started, short_waits):
    before = children()
    maker = Maker()
    workers = started(maker, timeout_s=1.0)
    (process,) = children() - before
    process.suspend()
    with pytest.raises(WorkerError, match="gave no batch 0 within 1 s: it hangs"):
        workers.make(0)
    assert_gone(before)


def test_a_worker_that_is_stopped_in_the_middle_of_an_answer_counts_as_hung(started, short_waits):
    class Large(Maker):
        def make(self, index: int, empty: Empty = np.empty) -> np.ndarray:
            return np.zeros(50_000_000, np.uint8)  # no room in the shared memory, nor in the socket's buffer

    before = children()
    maker = Large()
    workers = started(maker, timeout_s=1.0)
    (process,) = children() - before
    worker = workers._workers[0]
    worker.ask(0)
    wait_until(lambda: readable(worker._socket))
    process.suspend()
    with pytest.raises(WorkerError, match="gave no batch 0 within 1 s: it hangs"):
        worker.answer(1.0, copy=True)
    workers.close()
    assert_gone(before)


def readable(connection: socket.socket) -> bool:
    """Whether more has come than the byte that says that a process serves."""
    if not select.select([connection], [], [], 0)[0]:
        return False
    return len(connection.recv(2, socket.MSG_PEEK)) > 1


def test_a_process_that_hangs_before_it_serves_is_forked_again(started, short_waits, monkeypatch, tmp_path):
    serve, hung = workers_module._serve_process, tmp_path / "hung"

    def hanging_once(*arguments: object) -> None:
        if not hung.exists():
            hung.touch()
            time.sleep(ERROR_S)
        serve(*arguments)

    monkeypatch.setattr(workers_module, "_SERVES_S", 0.5)
    monkeypatch.setattr(workers_module, "_serve_process", hanging_once)
    before = children()
    maker = Maker(in_place=True)
    workers = started(maker, batch_bytes=200)
    (first,) = children() - before
    assert taken(workers, 0, 20) == list(range(20))  # `AHEAD` were asked for when it was killed
    (second,) = children() - before
    assert second != first and hung.exists()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GONE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_timeout_for_all_sockets_is_none_of_the_workers(started):
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.01)
    try:
        maker = Maker()
        workers = started(maker)
        time.sleep(0.05)
        assert workers.make(1)[0, 0] == 1
    finally:
        socket.setdefaulttimeout(before)


def test_batches_behind_the_last_are_made_while_nobody_asks(started):
    class Counting(Maker):
        def __init__(self) -> None:
            super().__init__()
            self.calls = multiprocessing.Value("i", 0)

        def make(self, index: int, empty: Empty = np.empty) -> np.ndarray:
            with self.calls.get_lock():
                self.calls.value += 1
            return super().make(index)

    maker = Counting()
    workers = started(maker, 2)
    assert taken(workers, 0, 3) == [0, 1, 2]
    # Those that each worker was asked for ahead, when batch 2 was taken.
    wait_until(lambda: maker.calls.value == 2 + 2 * AHEAD)
    assert taken(workers, 3, 3) == [3, 4, 5]
    wait_until(lambda: maker.calls.value == 5 + 2 * AHEAD)
    assert taken(workers, 3, 3) == [3, 4, 5]  # not where it left: what was made ahead is dropped


def test_ctrl_c_is_the_parents_matter(started):
    before = children()
    maker = Maker()
    workers = started(maker)
    (process,) = children() - before
    workers.make(0)  # its handlers are set
    for number in (signal.SIGINT, signal.SIGHUP):
        process.send_signal(number)
    assert workers.make(1)[0, 0] == 1


def test_closed_workers_are_gone(started):
    before = children()
    maker = Maker()
    workers = started(maker, 4)
    assert len(children() - before) == 4
    workers.close()
    assert_gone(before)


def test_threads_leave_when_they_are_closed(started):
    before = set(threading.enumerate())
    maker = Maker()
    workers = started(maker, 4, processes=False)
    ours = set(threading.enumerate()) - before
    assert len(ours) == 4
    workers.close()
    for thread in ours:
        thread.join(GONE_S)
        assert not thread.is_alive()


def test_workers_that_cannot_all_be_started_are_none(monkeypatch):
    from unstall.pipeline.loaders import workers as module

    before = children()
    first, pair = [], module.socket.socketpair

    def limited():
        if first:
            raise OSError(24, "Too many open files")
        first.append(1)
        return pair()

    monkeypatch.setattr(module.socket, "socketpair", limited)
    with pytest.raises(OSError, match="Too many open files"):
        Workers(Maker().make, 2, processes=True)
    assert_gone(before)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy for ever"])
def test_processes_end_with_a_parent_that_is_killed(busy, tmp_path):
    script = pathlib.Path(tmp_path / "script.py")
    script.write_text(
        "import os, signal, sys, threading\n"
        "from unstall.pipeline.loaders.workers import Workers\n"
        "class Maker:\n"
        "    def make(self, index, empty):\n"
        "        if index: threading.Event().wait()\n"
        "        return os.getpid()\n"
        "maker = Maker()\n"
        "workers = Workers(maker.make, 3, processes=True)\n"
        "print(*{workers.make(0) for _ in range(3)}, flush=True)\n"
        f"for _ in range({3 * busy}): threading.Thread(target=workers.make, args=(1,), daemon=True).start()\n"
        "threading.Event().wait(0.3)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    done = subprocess.Popen([sys.executable, script], env=environment, stdout=subprocess.PIPE, text=True)
    printed, _ = done.communicate(timeout=60)
    assert done.returncode == -signal.SIGKILL
    numbers = [int(number) for number in printed.split()]
    assert len(numbers) == 3
    assert have_ended(*numbers)
