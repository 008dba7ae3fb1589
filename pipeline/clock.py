"""The only module of this package that reads a clock."""

from __future__ import annotations

import time


def now_ns() -> int:
    """Returns a monotonic time in nanoseconds."""
    return time.perf_counter_ns()


def process_cpu_ns() -> int:
    """Returns the CPU time of this process, all threads together, in nanoseconds."""
    return time.process_time_ns()
