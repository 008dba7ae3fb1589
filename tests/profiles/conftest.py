"""A profiler that watches every `fit` of a test of a part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unstall.profiles.script.profiler import Profiler


@pytest.fixture
def watched() -> Iterator[Profiler]:
    profiler = Profiler(ceilings=None, max_steps=None)
    profiler.attach()
    yield profiler
    profiler.detach()
