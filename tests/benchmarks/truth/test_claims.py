"""How near to the truth our own figures are: a case of every part, often enough to tell a bias from noise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import PROJECT_ROOT
from tests.checks import with_gpus
from unstall.benchmarks.lab.command import devices_here
from unstall.benchmarks.truth.promises import LEAST_REPEATS, LOOPS, ON_GPU, PLANTED

pytestmark = pytest.mark.claims
_HAS_GPU = any(device.kind == "gpu" for device in devices_here())
# Of the four grids, the two that have each device and each kind of loader once.
_GROUPS = [name for name in PLANTED if name not in ("grid-cpu", "grid-emulated-ahead")]


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(
            name,
            marks=[pytest.mark.needs(library)]
            if (library := LOOPS.get(name))
            else [pytest.mark.skipif(name in ON_GPU and not _HAS_GPU, reason="needs a GPU")],
        )
        for name in _GROUPS
    ],
)
def test_repeats_are_as_near_to_the_truth_as_promised(group: str, tmp_path: Path) -> None:
    words = ["--only", group, "--repeats", str(LEAST_REPEATS), "--out", str(tmp_path / "out")]
    ended = subprocess.run([sys.executable, "-m", "benchmarks.truth", *words], cwd=PROJECT_ROOT, env=with_gpus())
    assert ended.returncode == 0
