"""Nothing that is found depends on how busy the machine is."""

from __future__ import annotations

import pytest

from tests.builders import MS
from unstall.profiles.remedies.tf import made_again, stage_costs


@pytest.fixture(autouse=True)
def no_chance(request, monkeypatch):
    """No busy moment decides what is found: no stage waits, each takes time. Tests that are planted measure."""
    monkeypatch.setattr(made_again, "_PROBED_NS", 60_000 * MS)
    if request.node.get_closest_marker("flaky") is None:
        monkeypatch.setattr(stage_costs, "_WAITS_RATIO", 2.0)
        monkeypatch.setattr(stage_costs, "_MATTERS_RATIO", -1.0)
