"""What may have made an epoch slower than another: reads from storage, memory that grows, a CPU quota."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

import psutil

from unstall.profiles import clock
from unstall.profiles.provenance import Throttling, throttled_ratio

# Reading the memory of child processes may take this part of the time, at most: one in so many.
_TIMES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Strain:
    """The strain on the machine in one epoch. None stands for what the system does not report.

    Attributes:
      read_bytes: that this process read from storage, and not from the page cache.
      memory_bytes: resident memory of this process at the end.
      throttled_ratio: part of the scheduler's periods in which the CPU quota stopped this process.
      workers_bytes: memory of its own, not shared, of all child processes at the end; None without children, and where
        it was read shortly before.
      python_blocks: blocks of memory that Python's own allocator has given out: small objects, not large arrays.
    """

    read_bytes: int | None
    memory_bytes: int | None
    throttled_ratio: float | None
    workers_bytes: int | None = None
    python_blocks: int | None = None


class StrainMeter:
    """Measures the strain since this object was made; a reading takes about 0.1 ms.

    The memory of child processes takes 1 to 10 ms for each, and is read as seldom as keeps that below a hundredth of
    the time: for eleven workers that start in each of many short epochs it once took half of the time of a script.
    """

    _workers_due_ns: ClassVar[int] = 0

    def __init__(self) -> None:
        self._read_bytes = _read_bytes()
        self._throttling = Throttling.now()

    def read(self) -> Strain:
        now = _read_bytes()
        return Strain(
            read_bytes=None if now is None or self._read_bytes is None else now - self._read_bytes,
            memory_bytes=_memory_bytes(),
            throttled_ratio=throttled_ratio(self._throttling, Throttling.now()),
            workers_bytes=self._workers_bytes(),
            python_blocks=sys.getallocatedblocks(),
        )

    @classmethod
    def _workers_bytes(cls) -> int | None:
        began_ns = clock.now_ns()
        if began_ns < cls._workers_due_ns:
            return None
        size = _workers_bytes()
        cls._workers_due_ns = began_ns + _TIMES * (clock.now_ns() - began_ns)
        return size


def _read_bytes() -> int | None:
    try:
        return int(psutil.Process().io_counters().read_bytes)
    except (psutil.Error, AttributeError, OSError):  # macOS has no such counter
        return None


def _memory_bytes() -> int | None:
    try:
        return int(psutil.Process().memory_info().rss)
    except psutil.Error:
        return None


def _workers_bytes() -> int | None:
    sizes = []
    try:
        children = psutil.Process().children(recursive=True)
    except psutil.Error:
        return None
    for child in children:
        try:
            sizes.append(int(child.memory_full_info().uss))
        except (psutil.Error, OSError):  # it has ended, or is another user's
            continue
    return sum(sizes) if sizes else None
