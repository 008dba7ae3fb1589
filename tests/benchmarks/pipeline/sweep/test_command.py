"""A sweep from end to end, as a user calls it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import PROJECT_ROOT
from tests.builders import write_quick_modules


@pytest.mark.slow
def test_a_sweep_measures_every_value_and_leaves_its_page(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--data", photos, "--model", "mynet:build", "--variants", "generator,directory", "--device", "cpu"]
    words += ["--sweep", "workers=1,2", "--sweep", "steps-per-execution=1,2", "--rounds", "1", "--set", "batch_size=4"]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    words += ["--sweep", "cores=1,2"] if cores > 1 else []
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.pipeline", *map(str, words), "--out", str(out)],
        cwd=PROJECT_ROOT,
        env={**os.environ, "COLUMNS": "80", "PYTHONPATH": f"{PROJECT_ROOT}{os.pathsep}{write_quick_modules(tmp_path)}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((out / "results.json").read_text())
    assert (document["command"], document["complete"]) == ("pipeline --sweep", True)
    axes = {"workers": ("generator",), "steps-per-execution": ("generator", "directory")}
    axes |= {"cores": ("generator", "directory")} if cores > 1 else {}
    found = {(one["axis"], one["variant"], one["value"]) for one in document["points"]}
    assert found == {
        (axis, variant, value) for axis, variants in axes.items() for variant in variants for value in (1, 2)
    }
    for one in document["points"]:
        assert one["images_per_sec"] > 0 and one["loader_images_per_sec"] > 0
        assert (one["compute_images_per_sec"] is None) == (one["axis"] == "steps-per-execution")
    assert {one["reason"] for one in document["left_out"]} == {
        "Keras' image_dataset_from_directory has no number of workers"
    }
    assert max(len(line) for line in done.stdout.splitlines() if str(out) not in line and "unstall" not in line) <= 80
    assert f"MORE           {out}/report.html" in done.stdout
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "results.json"]
    typed = document.pop("typed")
    assert typed[document["plan"]["data"]] == shlex.quote(str(photos)) and str(tmp_path) not in json.dumps(document)
