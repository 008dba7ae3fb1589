"""Loops of PyTorch's on a GPU that computes behind the host: on a stand-in for its stream and events, and on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import INSTALLED
from tests.checks import SHORT_PROFILES, with_gpus
from tests.planted import planted

# A thread in the place of the GPU: computes what it is given, in order, by sleeping.
STAND_IN = """
import concurrent.futures
gpu = concurrent.futures.ThreadPoolExecutor(1)
work = [gpu.submit(int)]

class Event:
    def __init__(self, blocking):
        assert blocking
    def query(self):
        return self.last.done()
    def synchronize(self):
        self.last.result()

class Stream:
    def query(self):
        return work[-1].done()
    def record_event(self, event):
        event.last = work[-1]
        return event

torch.cuda.Event = Event
torch.cuda.is_initialized = lambda: True
torch.cuda.device_count = lambda: 2
torch.cuda.memory_allocated = lambda device: 1 - device  # the second GPU is not used
torch.cuda.current_stream = {0: Stream()}.get
torch.cuda.get_device_name = lambda device: "stand-in"
torch.cuda.is_current_stream_capturing = lambda: False

def compute(ms):
    work.append(gpu.submit(time.sleep, ms / 1e3))

def wait():
    work[-1].result()
"""
ON_GPU = """
matrix = torch.randn(2048, 2048, device="cuda") / 2048**0.5
products = {}

def compute(ms):
    for _ in range(products.get(ms, 0)):
        matrix @ matrix

def wait():
    torch.cuda.synchronize()

def seconds(count):
    began = time.perf_counter()
    for _ in range(count):
        matrix @ matrix
    wait()
    return time.perf_counter() - began

seconds(300)
each_ms = 1e3 * seconds(300) / 300
products = {ms: max(1, round(ms / each_ms)) for ms in (10.0, 20.0)}
"""
SCRIPT = """
import os, sys, time
import torch
from torch.utils.data import DataLoader

load_ms, step_ms, waits = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "waits"

class Batches:
    def __len__(self):
        return 25
    def __getitem__(self, index):
        time.sleep(load_ms / 1e3)
        return torch.zeros(10, 3, 4, 4), torch.zeros(10)
%s
data = DataLoader(Batches(), batch_size=None)
for epoch in range(3):
    for images, labels in data:
        compute(step_ms)
        if waits:
            wait()
    wait()
"""


@pytest.mark.long
@planted
@pytest.mark.needs("torch")
@pytest.mark.parametrize("gpu", [STAND_IN, pytest.param(ON_GPU, marks=pytest.mark.gpu)], ids=["stand-in", "gpu"])
@pytest.mark.parametrize(
    ("load_ms", "step_ms", "waits", "percent"),
    [
        (5, 20.0, "goes-on", 0),  # loading hides behind the GPU
        (30, 10.0, "goes-on", 67),  # the GPU idles for 20 of 30 ms
        (10, 10.0, "waits", 50),  # the script waits for each result, as `loss.item()` does
    ],
)
def test_waiting_counts_from_when_the_gpu_has_finished(
    gpu: str, load_ms: float, step_ms: float, waits: str, percent: float, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT % gpu)
    environment = with_gpus()
    environment["PYTHONPATH"] = f"{INSTALLED}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    words = ["--no-trial", "--out", "out", "train.py", str(load_ms), str(step_ms), waits]
    process = subprocess.run(
        [sys.executable, "-c", SHORT_PROFILES, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    (result,) = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    assert 100 * result["loading_ratio"] == pytest.approx(percent, abs=5), process.stdout
