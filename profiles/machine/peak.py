"""Measures the most memory that this process held during a piece of work."""

from __future__ import annotations

import re
from pathlib import Path


class PeakMemory:
    """Measures the highest resident memory of this process from the construction of this object on."""

    def __init__(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM. Source: proc(5)
            self._before_bytes: int | None = _status_bytes("VmRSS")
        except OSError:
            self._before_bytes = None

    def growth_bytes(self) -> int | None:
        """Returns how far the highest memory exceeds that at construction; None where the system does not tell."""
        return None if self._before_bytes is None else max(0, _status_bytes("VmHWM") - self._before_bytes)


def _status_bytes(name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), flags=re.MULTILINE)
    if match is None:
        raise OSError(f"the system does not tell {name}")
    return int(match[1]) * 1024
