"""What remedies may take of this machine: calls at once, and bytes for a cache."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass

import psutil

from unstall.profiles.provenance import free_memory_bytes, usable_cores

# The part of the free memory, and of the free disk, that a cache may take.
_FREE_RATIO = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many calls at once the cores can take, and the largest cache in memory and on disk, in bytes."""

    calls: int
    memory_bytes: float
    disk_bytes: float

    def memory_limit(self, size_bytes: float) -> str | None:
        """Returns the limit of memory that something of this size exceeds, in words; None where it fits."""
        return None if size_bytes <= self.memory_bytes else f"{self.memory_bytes / 1e6:,.0f} MB of memory"

    def holds_pages_of(self, size_bytes: float) -> bool:
        """Whether the page cache can keep a file of this size for the next epoch."""
        return size_bytes <= self.memory_bytes / _FREE_RATIO


def room_here() -> Room:
    """Returns what this process may take: all usable cores; half of the free memory, and of the disk with /tmp.

    Of several ranks that `torchrun` or its like has started on this host each has its part of the memory.
    """
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return Room(
        calls=max(1, round(usable_cores())),
        memory_bytes=_FREE_RATIO * free_memory_bytes() / (int(ranks) if ranks.isdecimal() and int(ranks) else 1),
        disk_bytes=_FREE_RATIO * psutil.disk_usage(tempfile.gettempdir()).free,
    )
