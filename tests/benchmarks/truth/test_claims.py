"""How near to the truth our own figures are: a case of every part, often enough to tell a bias from noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.lab.command import devices_here
from benchmarks.truth.__main__ import main
from benchmarks.truth.promises import LEAST_REPEATS, PLANTED, TRANSFER

pytestmark = pytest.mark.claims


@pytest.mark.parametrize("group", [name for name in PLANTED if name != TRANSFER])
def test_twenty_repeats_are_as_near_to_the_truth_as_promised(group: str, tmp_path: Path) -> None:
    assert main(["--only", group, "--repeats", str(LEAST_REPEATS), "--out", str(tmp_path / "out")]) == 0


@pytest.mark.skipif(all(device.kind != "gpu" for device in devices_here()), reason="needs a GPU")
def test_twenty_transfers_to_a_gpu_are_as_near_to_the_truth_as_promised(tmp_path: Path) -> None:
    assert main(["--only", TRANSFER, "--repeats", str(LEAST_REPEATS), "--out", str(tmp_path / "out")]) == 0
