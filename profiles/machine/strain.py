"""What may have made an epoch slower than another: reads from storage, memory that grows, a CPU quota."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

import psutil

from unstall.profiles import clock
from unstall.profiles.provenance import Throttling, throttled_ratio

# Reading the memory of child processes may take so long, and then no more of the time than this.
_FREE_NS, _MOST_RATIO = 300_000_000, 0.01


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

    The memory of a child process takes 1 to 10 ms more, which in short epochs with many workers is a large part of the
    time: it is not read after each of them.
    """

    _began_ns: ClassVar[int | None] = None
    _spent_ns: ClassVar[int] = 0

    def __init__(self) -> None:
        self._read_bytes = _read_bytes()
        self._throttling = Throttling.now()

    def read(self) -> Strain:
        now = _read_bytes()
        return Strain(
            read_bytes=None if now is None or self._read_bytes is None else now - self._read_bytes,
            memory_bytes=_memory_bytes(),
            throttled_ratio=throttled_ratio(self._throttling, Throttling.now()),
            workers_bytes=self._workers_bytes_if_due(),
            python_blocks=sys.getallocatedblocks(),
        )

    @classmethod
    def _workers_bytes_if_due(cls) -> int | None:
        now_ns = clock.now_ns()
        cls._began_ns = cls._began_ns or now_ns
        if cls._spent_ns > _FREE_NS + _MOST_RATIO * (now_ns - cls._began_ns):
            return None
        size = _workers_bytes()
        cls._spent_ns += clock.now_ns() - now_ns
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
