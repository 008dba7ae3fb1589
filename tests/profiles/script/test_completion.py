"""Steps on a device that computes behind the host, with planted devices."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.checks import with_gpus
from tests.planted import planted

JAX = """
import os, sys, time
os.environ["KERAS_BACKEND"] = "jax"
import keras, numpy as np
from unstall.profiles.script.hooks import time_hooks
from unstall.profiles.script.monitor import StallMonitor

class Data(keras.utils.PyDataset):
    def __init__(self, wait_s, end_s):
        super().__init__(workers=1)
        self.wait_s, self.end_s = wait_s, end_s
        self.batch = np.zeros((64, 16, 16, 3), np.float32), np.zeros(64, np.float32)
    def __len__(self):
        return 20
    def __getitem__(self, index):
        time.sleep(self.wait_s)
        return self.batch
    def on_epoch_end(self):
        time.sleep(self.end_s)

class Slow(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(0.03)

time_hooks()
model = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
model.compile("adam", "mse")
for data, callbacks in ((Data(0.03, 0), []), (Data(0, 0.5), []), (Data(0, 0), [Slow()])):
    monitor = StallMonitor()
    model.fit(data, epochs=2, verbose=0, callbacks=[monitor, *callbacks])
    epoch = monitor.watch.records[-1]
    ratio = -1 if epoch.loading_ratio is None else epoch.loading_ratio
    loading_ms = ratio * (epoch.epoch_ns - epoch.all_callbacks_ns) / 1e6
    edges_ms = epoch.after_ns / 1e6, epoch.before_ns / 1e6
    print(epoch.steady_wait_ns / 1e6 / epoch.steady_steps, *edges_ms, ratio, loading_ms)
sys.stdout.flush()
os._exit(0)  # the client of JAX's CPU device may wait for ever at Python's end
"""


@pytest.mark.long
@planted
@pytest.mark.needs("jax")
@pytest.mark.parametrize("platform", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_on_jax_waits_edges_and_callbacks_are_found_behind_the_host(platform: str) -> None:
    environment = {**(os.environ if platform == "cpu" else with_gpus()), "JAX_PLATFORMS": platform}
    process = subprocess.run([sys.executable, "-c", JAX], env=environment, capture_output=True, text=True, timeout=200)
    rows = [[float(value) for value in line.split()] for line in process.stdout.splitlines()]
    assert len(rows) == 3, process.stderr[-2000:]
    waits, edges, callbacks = rows
    assert waits[0] == pytest.approx(30, abs=3) and waits[1] < 50
    # What the data do at the end of an epoch is an edge; it was booked as steps: 0 ms of edge, 25 ms a step.
    assert edges[1] == pytest.approx(500, abs=50) and edges[0] < 5
    # The first hook of a callback was an edge of 30 ms, and the loading ratio was left out.
    assert callbacks[2] < 15 and waits[3] > 0.8
    # Of the 600 ms of callbacks less than two hooks are loading. On a GPU, whose steps take no time, edges are half of
    # what else there is in an epoch.
    assert -50 < callbacks[4] < 60 and (platform == "cuda" or -0.1 < callbacks[3] < 0.3)
