"""What the measurement takes for granted of a GPU, seen on one: Keras on JAX there, and the GPU's counters."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests import PROJECT_ROOT
from tests.checks import with_gpus

pytestmark = [pytest.mark.gpu, pytest.mark.needs("jax")]

BUSY = """
import json, os, time
import jax, numpy as np
from unstall.profiles.machine.telemetry import Recorder, during
matrix = jax.device_put(np.ones((8192, 8192), np.float32))
product = jax.jit(lambda a: a @ a / 8192)
product(matrix).block_until_ready()
with Recorder(0.2) as recorder:
    began = time.monotonic()
    while time.monotonic() - began < 3:
        for _ in range(20):
            matrix = product(matrix)
        matrix.block_until_ready()
trace = recorder.trace
use = during(trace, [(1.0, 3.0)])
memory = [value for column in trace.gpu_memory_bytes for value in column if value is not None]
print(json.dumps([use.gpu_ratio, max(memory), use.gpu_watts, use.gpu_celsius]), flush=True)
os._exit(0)
"""

AHEAD = """
import json, os
import jax, keras, numpy as np
from unstall.profiles.devices import parse_device
from unstall.profiles.measure.backends import backend_of, device_here

class Data(keras.utils.PyDataset):
    drawn = 0
    def __len__(self):
        return 5
    def __getitem__(self, index):
        Data.drawn += 1
        return np.zeros((4, 8), "float32"), np.zeros(4, "float32")

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(Data(), verbose=0)
real, seen = model.train_function, []

def train(state, iterator):
    before = Data.drawn
    batch = next(iterator)
    seen.append((before, type(batch[0]).__module__.split(".")[0]))
    return real(state, iter([batch]))

model.train_function, Data.drawn = train, 0
model.fit(Data(), verbose=0)
print(json.dumps([seen, backend_of(model, parse_device("gpu")).drawn_ahead, device_here().kind]), flush=True)
os._exit(0)
"""


def on_gpu(*words: str) -> str:
    """Runs Python where GPUs are seen. Returns what it printed."""
    environment = with_gpus() | {"KERAS_BACKEND": "jax", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    process = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=200, cwd=PROJECT_ROOT, env=environment
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return process.stdout


def figures_of(script: str) -> Any:
    return json.loads(on_gpu("-c", script).splitlines()[-1])


def test_the_counters_of_a_busy_gpu_are_read() -> None:
    ratio, memory_bytes, watts, celsius = figures_of(BUSY)
    assert ratio > 0.8
    assert memory_bytes > 2 * 8192**2 * 4
    assert watts > 100 and 15 < celsius < 95


def test_keras_sends_each_batch_to_the_gpu_a_step_ahead() -> None:
    seen, drawn_ahead, kind = figures_of(AHEAD)
    assert kind == "gpu" and drawn_ahead == 1
    # How many batches were drawn before each of five steps asked for its own.
    assert [before for before, _ in seen] == [0, 2, 3, 4, 5]
    assert {module for _, module in seen} == {"jaxlib"}


def test_the_check_of_devices_finds_a_gpu_that_computes() -> None:
    printed = on_gpu("-m", "benchmarks.devices", "--check")
    assert "cuda" in printed.lower() and "computes" in printed and "No GPU is seen" not in printed
