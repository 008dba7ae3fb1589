"""Memory that grows from epoch to epoch: leaks of each kind are planted and named, and clean epochs have none."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from tests.checks import run_python
from tests.planted import repeated

LOOP = """
import time
import numpy as np
from unstall import profiles
kept = []
batches = profiles.watch([np.ones((4, 8), np.float32)] * 6)
for epoch in range({epochs}):
    for batch in batches:
        batch.sum()
        time.sleep(0.001)
    {leak}
"""
WORKERS = """
import torch
from torch.utils.data import DataLoader
kept = []
class Leaky:
    def __len__(self):
        return 16
    def __getitem__(self, index):
        kept.append(torch.ones(150_000))
        return torch.ones(8)
loader = DataLoader(Leaky(), batch_size=2, num_workers=2, persistent_workers=True)
for epoch in range(14):
    for batch in loader:
        batch.sum()
"""
CLEAN = LOOP.format(epochs=200, leak="np.ones(400_000).sum()")


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param(
            LOOP.format(epochs=14, leak="kept.append(np.ones(400_000))"),
            r"this process by 3\.\d MB \(.*not in Python's small objects, but in arrays",
            id="arrays",
        ),
        pytest.param(
            LOOP.format(epochs=14, leak="kept.append([[] for _ in range(60_000)])"),
            r"this process by \d\.\d MB \(.*most of it Python's own small objects",
            id="objects",
        ),
        pytest.param(
            WORKERS,
            r"every epoch: its worker processes by \d+\.\d MB",
            id="workers",
            marks=pytest.mark.needs("torch"),
        ),
        pytest.param(CLEAN, None, id="clean"),
    ],
)
@repeated
def test_a_planted_leak_is_named_and_clean_epochs_have_none(script: str, said: str | None, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(script))
    shown = run_python(tmp_path, "-m", "unstall", "profile", "--no-trial", "--out", "out", "train.py")
    assert shown.returncode == 0, shown.stderr[-3000:]
    [verdict] = json.loads((tmp_path / "out" / "results.json").read_text())["verdicts"]
    findings = [one["text"] for one in verdict["findings"] if one["rule"] == "growing memory"]
    if said is None:
        assert findings == []
        return
    assert len(findings) == 1
    assert re.search(said, findings[0]), findings
