"""How much of the cores' time other programs take during a measurement."""

from __future__ import annotations

import multiprocessing

import psutil

from unstall.profiles import clock
from unstall.profiles.provenance import usable_cores

# The kernel counts CPU time in ticks of 10 ms; a ratio over fewer than ten ticks is too coarse.
_LEAST_NS = 100_000_000
# Upper limit of the ratio: the scheduler gives each program that waits for a core some of its time.
_MOST_RATIO = 0.95


class Others:
    """Measures the CPU time of other programs since this object was made; a reading takes about 0.1 ms.

    Child processes that Python's `multiprocessing` started are not other programs; child processes that were started in
    another way are.
    """

    def __init__(self) -> None:
        self._began = _Reading()

    def ratio(self) -> float | None:
        """Returns the part of the time of this process' cores that other programs took, from 0 to 0.95.

        None where it is unknown: after less than 0.1 s, where the system does not report the cores' times, and under a
        CPU quota of fewer cores, since other programs then use cores that this process could not have used.
        """
        now, began = _Reading(), self._began
        wall_ns = now.at_ns - began.at_ns
        if wall_ns < _LEAST_NS or not now.cores or usable_cores() < now.cores:
            return None
        others_ns = now.machine_ns - began.machine_ns - (now.own_ns - began.own_ns)
        return min(max(others_ns / wall_ns / now.cores, 0.0), _MOST_RATIO)

    def own_cpu_ns(self) -> int:
        """Returns the CPU time of this process and its `multiprocessing` children since then, in nanoseconds."""
        return _own_cpu_ns() - self._began.own_ns


class _Reading:
    """The clocks at one moment; `cores` is 0 where the system does not report the cores' times."""

    def __init__(self) -> None:
        self.at_ns = clock.now_ns()
        try:
            self.machine_ns, self.cores = clock.machine_cpu_ns()
        except (OSError, psutil.Error):  # `/proc/stat` cannot be read in every sandbox
            self.machine_ns, self.cores = 0, 0
        self.own_ns = _own_cpu_ns()


def _own_cpu_ns() -> int:
    own_ns = clock.own_cpu_ns() + clock.gone_children_cpu_ns()
    for child in multiprocessing.active_children():
        try:
            times = psutil.Process(child.pid).cpu_times()
        except psutil.Error:
            continue
        own_ns += int((times.user + times.system) * 1e9)
    return own_ns
