"""The processes that measure: one on a single core, one on all cores, and a fresh one for the memory of each subject.

The libraries are imported once, in a server that forks all of these processes and has not run TensorFlow itself. The
processes are no children of `lab/child.py`: each child would import TensorFlow anew, which takes longer than to measure
the memory of a subject.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import multiprocessing
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.augmentation.feeds import has_loop, open_feed
from benchmarks.augmentation.libraries import Subject
from benchmarks.augmentation.samples import Sample
from benchmarks.lab.serve import one_line
from profiles import clock

# A window lasts about so long, and has at least so many batches.
_WINDOW_S, _LEAST_BATCHES = 0.1, 3
# Tracing and one window are done in seconds; what takes so much longer hangs.
_HANG_S = 120.0
# Run while the memory is watched: threads and buffers have reached their size before.
_MEMORY_BATCHES = 20
_WARM_UP = Subject(operation="none", library="tf_ops", placement="batch")


class SubjectFailed(Exception):
    """A subject that cannot be measured; the message says why, in one line."""


class WorkerLost(SubjectFailed):
    """The process that measures is gone, or hung and was ended."""


@dataclass(slots=True, kw_only=True)
class _Bench:
    """What a measuring process holds: the photos, and an open feed with its batches a window for each subject."""

    images: np.ndarray
    batch_size: int
    cores: int
    feeds: dict[Subject, tuple[Iterator[Any], int]]


class Worker:
    """One measuring process, seen from the command; the process starts when it is first asked."""

    def __init__(self, images: np.ndarray, batch_size: int, *, cores: int) -> None:
        """Keeps what the process needs.

        Args:
          images: (images, side, side, 3) uint8.
          batch_size: images a batch.
          cores: the process' calls in parallel; with 1 it is held to one core.
        """
        self._begin = functools.partial(_begin, images, batch_size, cores)
        self._pool: ProcessPoolExecutor | None = None
        self._pid = 0

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls one of this module's functions there.

        Raises:
          SubjectFailed: if the function raised.
          WorkerLost: if the process ended or did not answer; the next call starts a new process.
        """
        try:
            if self._pool is None:
                self._start()
            assert self._pool is not None
            failed, value = self._pool.submit(_answer, function, arguments).result(_HANG_S)
        except TimeoutError:
            self.close()
            raise WorkerLost(f"no answer within {_HANG_S:.0f} s: it hung and was ended") from None
        except BrokenProcessPool:
            self.close()
            raise WorkerLost("its process ended; most likely the machine ran out of memory") from None
        if failed:
            raise SubjectFailed(value)
        return value

    def _start(self) -> None:
        with _quiet():  # TensorFlow prints at import which devices and libraries there are
            self._pool = ProcessPoolExecutor(1, mp_context=_context(), initializer=self._begin)
            self._pid = self._pool.submit(os.getpid).result(_HANG_S)

    def close(self) -> None:
        """Ends the process at once; the next call starts a new one."""
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        pool.shutdown(wait=True, cancel_futures=True)


def measure(bench: _Bench, subject: Subject, round_: int) -> Sample:
    """Takes one window of a subject, in its steady state."""
    if subject not in bench.feeds:
        _open(bench, subject)
    feed, batches = bench.feeds[subject]
    _take(feed, 2 * bench.cores)  # what was prepared before the window is not counted in it
    start_busy_ns = _machine_busy_ns()
    start_ns, start_cpu_ns = clock.now_ns(), clock.own_cpu_ns()
    _take(feed, batches)
    cpu_ns, wall_ns = clock.own_cpu_ns() - start_cpu_ns, clock.now_ns() - start_ns
    return Sample(
        round=round_,
        cores=bench.cores,
        images=batches * bench.batch_size,
        wall_ns=wall_ns,
        cpu_ns=cpu_ns,
        others_cpu_ns=max(0, _machine_busy_ns() - start_busy_ns - cpu_ns),
    )


def look_for_loop(bench: _Bench, subject: Subject) -> bool | None:
    return has_loop(subject, side=bench.images.shape[1], batch_size=bench.batch_size)


def picture(bench: _Bench, subject: Subject, images: np.ndarray) -> np.ndarray:
    """Returns these images as the subject makes them with the draw that all share: float32 in [0, 255]."""
    return np.asarray(next(open_feed(subject, images, batch_size=len(images), calls=1, pinned=True)))


def peak_memory_bytes(bench: _Bench, subject: Subject) -> int:
    """Returns by how much the resident memory of this process, which must be a fresh one, peaks while the subject runs.

    What is counted: the subject's graph, its threads, the batches in the making with as many calls as there are cores,
    and what the library loads when first used. The photos, the imports and TensorFlow at rest are not.
    """
    _take(open_feed(_WARM_UP, bench.images, batch_size=1, calls=bench.cores), _MEMORY_BATCHES)
    _give_back_freed_memory()  # else the subject would take it again, and the peak would not show it
    with contextlib.suppress(OSError):  # proc(5): sets the peak to what is resident now
        Path("/proc/self/clear_refs").write_text("5")
    before_bytes = psutil.Process().memory_info().rss
    _take(open_feed(subject, bench.images, batch_size=bench.batch_size, calls=bench.cores), _MEMORY_BATCHES)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1)
    return max(0, peak_bytes - before_bytes)


def _give_back_freed_memory() -> None:
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _machine_busy_ns() -> int:
    """Returns the CPU time that all processes of the machine, and its host for others, have taken."""
    times = psutil.cpu_times()
    waited_s = times.idle + getattr(times, "iowait", 0.0)
    in_guests_s = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # contained in user and nice
    return int((sum(times) - waited_s - in_guests_s) * 1e9)


def _take(feed: Iterator[Any], batches: int) -> None:
    for _ in range(batches):
        next(feed)


def _open(bench: _Bench, subject: Subject) -> None:
    feed = open_feed(subject, bench.images, batch_size=bench.batch_size, calls=bench.cores)
    _take(feed, 2 * bench.cores + 1)  # traces it
    start_ns = clock.now_ns()
    _take(feed, _LEAST_BATCHES)
    batch_s = max(1, clock.now_ns() - start_ns) / _LEAST_BATCHES / 1e9
    bench.feeds[subject] = feed, max(_LEAST_BATCHES, round(_WINDOW_S / batch_s))


_bench: _Bench | None = None  # of this process, if it measures


def _begin(images: np.ndarray, batch_size: int, cores: int) -> None:
    """Sets up a measuring process, before TensorFlow starts any thread in it."""
    global _bench
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command decides
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    warnings.simplefilter("ignore", UserWarning)
    if cores == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(cores)
    tf.config.threading.set_inter_op_parallelism_threads(cores)
    _bench = _Bench(images=images, batch_size=batch_size, cores=cores, feeds={})


def _leave_with_parent() -> None:
    """Ends this process when the command is gone, even killed: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """Returns whether the function failed, and its value or the reason: not every exception can leave its process."""
    try:
        return False, function(_bench, *arguments)
    except Exception as error:
        return True, one_line(error)


@functools.cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tensorflow", "keras", "scipy.ndimage", "cv2", "albumentations"])
    return context


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Sends standard error to nowhere: processes that are started meanwhile, and theirs, print nothing."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
