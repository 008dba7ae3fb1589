"""Clocks, sleeping, and what is named after the time. No other module of this package reads a clock or sleeps."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil


# Defaults, not `time.perf_counter_ns()`: a script may put other functions into `time`, as libraries for tests do.
def now_ns(_read: Callable[[], int] = time.perf_counter_ns) -> int:
    """Returns the time of a monotonic clock, in nanoseconds."""
    return _read()


def file_time_ns() -> int:
    """Returns the time by which a file is dated that is written now, in nanoseconds; 0 where none can be written."""
    with contextlib.suppress(OSError), tempfile.TemporaryFile() as file:
        return os.fstat(file.fileno()).st_mtime_ns
    return 0


def sleep_until_ns(deadline_ns: int, _sleep: Callable[[float], None] = time.sleep) -> None:
    """Sleeps until `now_ns()` reaches the deadline; returns at once if the deadline has passed."""
    left_ns = deadline_ns - now_ns()
    if left_ns > 0:
        _sleep(left_ns / 1e9)


def cpu_ns() -> int:
    """Returns the CPU time of this process and its child processes, running and ended, in nanoseconds."""
    running_ns = cpu_ns_of(psutil.Process(os.getpid()).children(recursive=True))
    return time.process_time_ns() + gone_children_cpu_ns() + running_ns


def gone_children_cpu_ns() -> int:
    """Returns the CPU time of child processes that have ended and were waited for, in nanoseconds."""
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((gone.ru_utime + gone.ru_stime) * 1e9)


def machine_cpu_ns() -> tuple[int, int]:
    """Returns how long the cores that this process may use have been busy, and the number of those cores.

    Programs of all users count, and so does time that a host gave to other virtual machines.

    Returns:
      (nanoseconds since the machine started, in ticks of 10 ms; cores). (0, 0) where a core is offline: then the list
      of the cores' times does not say which core is which.
    """
    all_cores = psutil.cpu_times(percpu=True)
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(all_cores))
    if not set(usable) <= set(range(len(all_cores))):
        return 0, 0
    cores = [all_cores[number] for number in usable]
    busy_s = sum(sum(core) - core.idle - getattr(core, "iowait", 0.0) - _counted_twice(core) for core in cores)
    return int(busy_s * 1e9), len(cores)


def _counted_twice(times: Any) -> float:
    """Returns the time of virtual machines that run here, which Linux counts in `user` and `nice` as well."""
    return float(getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0))


def tree_cpu_ns(pid: int) -> int:
    """Returns the CPU time of another process and its running child processes, in nanoseconds; 0 if it has ended."""
    try:
        root = psutil.Process(pid)
        return cpu_ns_of([root, *root.children(recursive=True)])
    except psutil.Error:
        return 0


def cpu_ns_of(processes: Iterable[psutil.Process]) -> int:
    """Returns the CPU time of processes, in nanoseconds, without those that have ended meanwhile."""
    total_s = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total_s += times.user + times.system
    return int(total_s * 1e9)


def own_cpu_ns() -> int:
    """Returns the CPU time of this process alone, all its threads, in nanoseconds."""
    return time.process_time_ns()


def thread_cpu_ns() -> int:
    """Returns the CPU time of the calling thread, in nanoseconds."""
    return time.thread_time_ns()


def queued_ns() -> int:
    """Returns how long the calling thread has waited for a core, in nanoseconds; 0 where the system does not tell."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def canary_ns(turns: int = 100_000) -> int:
    """Times a fixed amount of pure Python work, about 5 ms, in nanoseconds.

    The work never changes, so that a longer time means a machine that is slower or busy with something else.
    """
    start_ns = now_ns()
    total = 0
    for turn in range(turns):
        total += turn & 7
    return now_ns() - start_ns


def run_folder(parent: Path) -> Path:
    """Returns a folder for a run's files that no other run has, named after the time and the process."""
    name = f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(parent / one for one in itertools.chain([name], numbered) if not (parent / one).exists())
