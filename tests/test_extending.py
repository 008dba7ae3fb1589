"""The command that docs/extending.md shows works: its code is taken out of the document and run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import PROJECT_ROOT

DOCUMENT = (PROJECT_ROOT / "docs" / "extending.md").read_text()


def nap(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{PROJECT_ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_that_it_shows_measures_writes_and_is_shown_again(tmp_path: Path) -> None:
    (code,) = re.findall(r"<!-- nap.py -->\n```python\n(.*?)```\n<!-- /nap.py -->", DOCUMENT, flags=re.DOTALL)
    (tmp_path / "nap.py").write_text(code)
    measured = nap(tmp_path, "nap.py", "--nap", "0.02", "--rounds", "2", "--out", "out")
    assert measured.returncode == 0, measured.stderr
    first = measured.stdout.splitlines()[0]
    assert re.fullmatch(r"2 naps, 0\.\d{3} s", first)
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert content["complete"] and min(content["samples"]["naps_ns"]) >= 20_000_000
    assert (tmp_path / "out" / "report.html").is_file()
    show = "from nap import KIND; from unstall.profiles.report import show; show.main(['show', 'out'], {'nap': KIND})"
    assert nap(tmp_path, "-c", show).stdout.splitlines() == [first]
    second = nap(tmp_path, "nap.py", "--out", "out")
    assert second.returncode == 2 and "holds results.json already" in second.stderr
    refused = nap(tmp_path, "nap.py", "--nap", "11")
    assert (refused.returncode, refused.stdout) == (2, "") and "--nap must be" in refused.stderr


def changed(folder: Path, name: str) -> Path:
    """Returns a copy of the checkout's packages in which a diff of the document is applied."""
    (diff,) = re.findall(rf"<!-- {name}.diff -->\n```diff\n(.*?)```\n<!-- /{name}.diff -->", DOCUMENT, flags=re.DOTALL)
    for package in ("unstall", "profiles"):
        shutil.copytree(PROJECT_ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for package in ("pipeline", "models", "benchmarks"):
        (folder / package).symlink_to(PROJECT_ROOT / package)
    words = ["git", "apply", "--unidiff-zero", "-"]
    applied = subprocess.run(words, cwd=folder, input=diff, capture_output=True, text=True, check=False)
    assert applied.returncode == 0, applied.stderr
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-P", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


TAPE_DECK = """
class Tape:
    def __iter__(self):
        return (np.zeros((8, 2)) for _ in range(12))

import numpy as np
"""
LISTENS = """
import sys, time
sys.path.insert(0, ".")
import tapedeck

for _ in range(2):
    for batch in tapedeck.Tape():
        time.sleep(0.001)
"""


def test_the_library_that_it_adds_has_its_loops_reported_on(tmp_path: Path) -> None:
    folder = changed(tmp_path, "library")
    (folder / "tapedeck.py").write_text(TAPE_DECK)
    (folder / "listens.py").write_text(LISTENS)
    done = run(folder, "-m", "unstall", "profile", "--no-trial", "--out", "out", "listens.py")
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads((folder / "out" / "results.json").read_text())["results"]
    assert [result["training"]["data"] for result in results] == ["a tape"] and "a tape" in done.stderr


@pytest.mark.needs("torch")
def test_the_remedy_that_it_adds_is_found_and_built(tmp_path: Path) -> None:
    code = """
import torch
from torch.utils.data import DataLoader
from unstall.profiles.data import Use, adapter
loader = DataLoader(torch.zeros(64, 2), batch_size=4, num_workers=2)
data = adapter(loader).rebuilt(loader, Use(), ["waiting"])
print("eight-ready" in [remedy.name for remedy in data.remedies], data.built(["eight-ready"], 3).prefetch_factor)
"""
    done = run(changed(tmp_path, "remedy"), "-c", code)
    assert done.stdout == "True 8\n", done.stderr[-2000:]
