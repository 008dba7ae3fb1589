"""The only module that reads a clock or sleeps."""

from __future__ import annotations

import os
import resource
import time
from typing import Any

import psutil


def now_ns() -> int:
    """Returns a monotonic time in nanoseconds."""
    return time.perf_counter_ns()


def sleep_until_ns(deadline_ns: int) -> None:
    """Sleeps until `now_ns()` reaches the deadline; returns at once where it has passed."""
    left_ns = deadline_ns - now_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


def cpu_ns() -> int:
    """Returns the CPU time of this process and its child processes, living and gone, in nanoseconds."""
    total_s = 0.0
    for child in psutil.Process(os.getpid()).children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        total_s += times.user + times.system
    return time.process_time_ns() + gone_children_cpu_ns() + int(total_s * 1e9)


def gone_children_cpu_ns() -> int:
    """Returns the CPU time of child processes that have ended and were waited for, in nanoseconds."""
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((gone.ru_utime + gone.ru_stime) * 1e9)


def machine_cpu_ns() -> tuple[int, int]:
    """Returns what anybody has used of the cores that this process may use, in nanoseconds, and how many they are.

    That is, what programs of other users took, and what the host gave to other machines. The kernel counts in ticks of
    10 ms.
    """
    every = psutil.cpu_times(percpu=True)
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(every))
    if not set(usable) <= set(range(len(every))):  # some are offline: they cannot be told by their place
        return 0, 0
    some = [every[number] for number in usable]
    busy_s = sum(sum(one) - one.idle - getattr(one, "iowait", 0.0) - _counted_twice(one) for one in some)
    return int(busy_s * 1e9), len(some)


def _counted_twice(times: Any) -> float:
    """Linux counts the time of guests in `user` and `nice` as well."""
    return float(getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0))


def tree_cpu_ns(pid: int) -> int:
    """Returns the CPU time of another process and its living child processes, in nanoseconds; 0 where it is gone."""
    total_s = 0.0
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    for one in family:
        try:
            times = one.cpu_times()
        except psutil.Error:
            continue
        total_s += times.user + times.system
    return int(total_s * 1e9)


def own_cpu_ns() -> int:
    """Returns the CPU time of this process alone, all its threads, in nanoseconds."""
    return time.process_time_ns()


def thread_cpu_ns() -> int:
    """Returns the CPU time of the calling thread, in nanoseconds."""
    return time.thread_time_ns()


def canary_ns(turns: int = 100_000) -> int:
    """Times a fixed amount of pure Python work, some 5 ms: what the machine itself does between windows."""
    start_ns = now_ns()
    total = 0
    for turn in range(turns):
        total += turn & 7
    return now_ns() - start_ns
