"""The processes that measure: one on a single core, one on all cores, and a fresh one for the memory of each subject.

The libraries are imported once, in a server that forks all of these processes and has not run TensorFlow itself. The
processes are not started by `lab/child.py`: each such child would import TensorFlow anew, which takes longer than to
measure the memory of a subject.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from typing import Any

import numpy as np

from unstall.benchmarks.evidence.augmentation.feeds import has_loop, open_feed
from unstall.benchmarks.evidence.augmentation.libraries import Subject
from unstall.benchmarks.evidence.augmentation.samples import Sample
from unstall.benchmarks.lab.serve import one_line
from unstall.profiles import clock
from unstall.profiles.machine import PeakMemory

# Target duration of a window, and its least number of batches.
_WINDOW_S, _LEAST_BATCHES = 0.1, 3
# Tracing and a window take seconds; a process that takes longer than this hangs.
_HANG_S = 120.0
# Number of batches that run while memory is measured; threads and buffers reach their full size within fewer.
_MEMORY_BATCHES = 20
_WARM_UP = Subject(operation="none", library="tf_ops", placement="batch")


class SubjectFailed(Exception):
    """A subject could not be measured; the message says why, in one line."""


@dataclass(slots=True, kw_only=True)
class _Bench:
    """What a measuring process holds: the photos, and for each subject an open feed and its batches per window."""

    images: np.ndarray
    batch_size: int
    cores: int
    feeds: dict[Subject, tuple[Iterator[Any], int]]


class Worker:
    """The command's side of one measuring process, which starts at the first call of `ask`."""

    def __init__(self, images: np.ndarray, batch_size: int, *, cores: int) -> None:
        """Keeps what the process needs.

        Args:
          images: (images, side, side, 3) uint8.
          batch_size: number of images in a batch.
          cores: number of parallel calls in the process; with 1 the process may use a single core only.
        """
        self._begin = functools.partial(_begin, images, batch_size, cores)
        self._pool: ProcessPoolExecutor | None = None
        self._pid = 0

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls one of this module's functions in the process.

        Raises:
          SubjectFailed: if the function raised, or the process ended or did not answer; then the next call starts a
            new process.
        """
        try:
            if self._pool is None:
                self._start()
            assert self._pool is not None
            failed, value = self._pool.submit(_answer, function, arguments).result(_HANG_S)
        except TimeoutError:
            self.close()
            raise SubjectFailed(f"no answer within {_HANG_S:.0f} s: it hung and was ended") from None
        except BrokenProcessPool:
            self.close()
            raise SubjectFailed("its process ended; most likely the machine ran out of memory") from None
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
    """Measures one window of a subject, after tracing and warming up."""
    if subject not in bench.feeds:
        _open(bench, subject)
    feed, batches = bench.feeds[subject]
    _take(feed, 2 * bench.cores)  # takes out what was prepared before the window, so that it is not counted
    start_busy_ns, _ = clock.machine_cpu_ns()
    start_ns, start_cpu_ns = clock.now_ns(), clock.own_cpu_ns()
    _take(feed, batches)
    cpu_ns, wall_ns = clock.own_cpu_ns() - start_cpu_ns, clock.now_ns() - start_ns
    busy_ns, _ = clock.machine_cpu_ns()
    return Sample(
        round=round_,
        cores=bench.cores,
        images=batches * bench.batch_size,
        wall_ns=wall_ns,
        cpu_ns=cpu_ns,
        others_cpu_ns=max(0, busy_ns - start_busy_ns - cpu_ns),
    )


def look_for_loop(bench: _Bench, subject: Subject) -> bool | None:
    return has_loop(subject, side=bench.images.shape[1], batch_size=bench.batch_size)


def picture(bench: _Bench, subject: Subject, images: np.ndarray) -> np.ndarray:
    """Returns what the subject makes of these images, with the draw that all subjects share: float32 in [0, 255]."""
    return np.asarray(next(open_feed(subject, images, batch_size=len(images), calls=1, pinned=True)))


def peak_memory_bytes(bench: _Bench, subject: Subject) -> int | None:
    """Returns how far the resident memory of this process, which must be new, rises at most while the subject runs.

    Counted are the subject's graph and threads, the batches that as many calls as there are cores make at a time, and
    what the library loads when first used. The photos, the imports and TensorFlow at rest are not counted. None where
    the system does not tell.
    """
    _take(open_feed(_WARM_UP, bench.images, batch_size=1, calls=bench.cores), _MEMORY_BATCHES)
    _give_back_freed_memory()  # otherwise the subject would reuse it, and the peak would not show that
    memory = PeakMemory()
    _take(open_feed(subject, bench.images, batch_size=bench.batch_size, calls=bench.cores), _MEMORY_BATCHES)
    return memory.growth_bytes()


def _give_back_freed_memory() -> None:
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has this function
        ctypes.CDLL(None).malloc_trim(0)


def _take(feed: Iterator[Any], batches: int) -> None:
    for _ in range(batches):
        next(feed)


def _open(bench: _Bench, subject: Subject) -> None:
    feed = open_feed(subject, bench.images, batch_size=bench.batch_size, calls=bench.cores)
    _take(feed, 2 * bench.cores + 1)  # the first batch traces the function
    start_ns = clock.now_ns()
    _take(feed, _LEAST_BATCHES)
    batch_s = max(1, clock.now_ns() - start_ns) / _LEAST_BATCHES / 1e9
    bench.feeds[subject] = feed, max(_LEAST_BATCHES, round(_WINDOW_S / batch_s))


_bench: _Bench | None = None  # what this process holds, if it is a measuring process


def _begin(images: np.ndarray, batch_size: int, cores: int) -> None:
    """Sets up a measuring process, before TensorFlow starts any thread in it."""
    global _bench
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the command ends this process
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    warnings.simplefilter("ignore", UserWarning)
    if cores == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(cores)
    tf.config.threading.set_inter_op_parallelism_threads(cores)
    _bench = _Bench(images=images, batch_size=batch_size, cores=cores, feeds={})


def _leave_with_parent() -> None:
    """Ends this process when the command has ended or was killed: otherwise this process would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """Returns whether the function failed, and its value or the error as text: not every exception can be pickled."""
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
    """Discards standard error: processes that are started meanwhile, and the processes they start, print nothing."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
