"""What other programs take of the cores beside a measurement."""

from __future__ import annotations

import multiprocessing

import psutil

from profiles import clock
from profiles.provenance import usable_cores

# The kernel counts CPU time in ticks of 10 ms: over less than ten of them a ratio says little.
_LEAST_NS = 100_000_000
# The largest that is told: a program always gets some of a core that it waits for.
_MOST_RATIO = 0.95


class Others:
    """Watches what others take, from the moment on that it is made; a reading takes some 0.1 ms.

    Child processes that Python's `multiprocessing` has begun are not others; those begun in another way are.
    """

    def __init__(self) -> None:
        self._began = _Reading()

    def ratio(self) -> float | None:
        """Returns what others took of the time of the cores that this process may use.

        None where that is not known: over less than 0.1 s, where the system does not tell, and under a CPU quota below
        the cores, which others have quotas of their own beside.
        """
        now, began = _Reading(), self._began
        wall_ns = now.at_ns - began.at_ns
        if wall_ns < _LEAST_NS or not now.cores or usable_cores() < now.cores:
            return None
        others_ns = now.machine_ns - began.machine_ns - (now.own_ns - began.own_ns)
        return min(max(others_ns / wall_ns / now.cores, 0.0), _MOST_RATIO)

    def own_cpu_ns(self) -> int:
        """Returns the CPU time that this process and its children of `multiprocessing` have used since."""
        return _own_cpu_ns() - self._began.own_ns


class _Reading:
    """The clocks at a moment; no cores where the system does not tell."""

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
