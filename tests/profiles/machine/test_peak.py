"""The peak of this process' memory, which only new work raises."""

from __future__ import annotations

import numpy as np
import pytest

from unstall.profiles.machine import PeakMemory


def test_the_peak_of_memory_is_seen_when_it_is_over() -> None:
    memory = PeakMemory()
    held = np.ones(100_000_000, np.uint8)
    del held
    grown = memory.growth_bytes()
    if grown is None:
        pytest.skip("the system does not let a process begin its peak afresh")
    assert 90e6 < grown < 200e6
