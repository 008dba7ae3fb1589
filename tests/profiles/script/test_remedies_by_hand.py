"""Planted data with a known best remedy: it is chosen, and gains what editing the script by hand gains."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.checks import run_python
from tests.planted import planted
from unstall.profiles.statistics import geometric_mean

# A measured gain may differ by this much from that of the script edited by hand.
NEAR = 0.10
# Plain runs of the script as written and as edited, in turns.
RUNS = 3

KERAS = """
import gc, sys, time
import numpy as np, keras, tensorflow as tf
def threads(count):
    options = tf.data.Options()
    options.threading.private_threadpool_size = count
    return options
def untuned():
    options = tf.data.Options()
    options.autotune.enabled = False
    return options
def network(width, layers, inputs):
    model = keras.Sequential([keras.Input((inputs,)), *(keras.layers.Dense(width) for _ in range(layers)),
                              keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
"""
# Prints how long all epochs took. What `fit` traces and sets up before the first of them, a long run pays once: so a
# batch is trained on before, and its iterator is gone by then: to free it later would hold a step up for seconds, until
# its tuner wakes. A cache fills in the first epoch.
NOTE = """
begins = []
note = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs=None: begins.append(time.perf_counter()))
"""
TRAINS = (
    NOTE
    + """
if hasattr(data, "element_spec"):
    first = next(iter(data))
    model.fit(tf.data.Dataset.from_generator(lambda: iter([first]), output_signature=data.element_spec), verbose=0)
else:
    model.fit(data, steps_per_epoch=1, verbose=0)
gc.collect()
model.fit(data, epochs=EPOCHS, verbose=0, callbacks=[note])
print("TOOK", time.perf_counter() - begins[0])
"""
)
# Trains twice, and prints how long the second time took: caches are full, also that of the script as written.
TRAINS_TWICE = (
    NOTE
    + """
for _ in range(2):
    begins.clear()
    model.fit(data, epochs=EPOCHS, verbose=0, callbacks=[note])
    took = time.perf_counter() - begins[0]
print("TOOK", took)
"""
)


@dataclass(frozen=True)
class Case:
    """A script, the edit that mends it by hand, and the remedies of which one must be chosen.

    Attributes:
      edits: by remedy, texts and what to write in their place; `{calls}` and `{queue}` are the numbers that the tool
        names.
      best: names of which one is among the chosen remedies; empty where the data themselves are right.
      compared: the contender whose gain is compared; that of the chosen one unless given. A chosen one may add to
        the best remedy others that have no edit by hand here.
      steady: whether the script prints the time of epochs after the first ones alone.
      untried: by remedy that must not be tried, words of the reason.
    """

    script: str
    edits: Mapping[str, Mapping[str, str]]
    best: frozenset[str]
    compared: str | None = None
    steady: bool = False
    untried: Mapping[str, str] = field(default_factory=dict)


# By remedy, the edits that call the map of a script several times at once, and read its batches ahead.
IN_CALLS = {
    "parallel": {".map(load)": ".map(load, num_parallel_calls={calls})"},
    "pool": {
        ".map(load)": ".map(load, num_parallel_calls={calls})",
        ".batch(8)": ".batch(8).with_options(threads({calls}))",
    },
    "prefetch": {".batch(8)": ".batch(8).prefetch(2)"},
    "repeat": {".batch(8)": ".batch(8).repeat()", "(data, epochs": "(data, steps_per_epoch=60, epochs"},
}
# A sample, after so many seconds of sleep.
PAUSE = """
def pause(value, seconds):
    def after(given):
        time.sleep(seconds)
        return given
    return tf.ensure_shape(tf.numpy_function(after, [value], value.dtype), value.shape)
"""
# An iterator that ends wakes tf.data's tuner first and is marked as cancelled next. A tuner that runs in between sleeps
# on, until its next wake-up, and the end waits for it. On one core, where any thread goes before the one that ends the
# iterator, that one always loses this race.
LOSES_TO_THE_TUNER = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
def set_policy(policy, thread=0):
    os.sched_setscheduler(thread, policy, os.sched_param(0))
last = keras.callbacks.LambdaCallback(
    on_train_batch_end=lambda batch, logs=None: set_policy(os.SCHED_IDLE) if batch == 59 else None
)
"""
# The end of a script with a loop of PyTorch's, whose clock began at `began`.
TRAINS_A_LOOP = """    for epoch in range(EPOCHS):
        for inputs, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), labels).backward()
            optimizer.step()
    print("TOOK", time.perf_counter() - began)
main()
"""
IMAGES = """
import glob
files = sorted(glob.glob(FILES + "/*.jpg"))[:240]
def load(file):
    image = tf.io.decode_jpeg(tf.io.read_file(file), channels=3)
    return tf.image.resize(image, (48, 48)) / 255, tf.strings.length(file)
def flip(image, label):
    return tf.image.random_flip_left_right(image), tf.cast(label, tf.float32)
model = keras.Sequential([keras.Input((48, 48, 3)), keras.layers.Conv2D(FILTERS, 3, 2),
                          keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
"""

CASES = {
    "a map that sleeps": Case(
        KERAS
        + """
def slow(index):
    time.sleep(0.016)  # so that the epochs of the edited script are long enough to tell a tenth of them
    return np.float32(index)
def load(index):
    value = tf.ensure_shape(tf.numpy_function(slow, [index], tf.float32), ())
    return tf.ones((8,)) * value / 480 + tf.random.uniform((8,)), value / 480
data = tf.data.Dataset.range(480).map(load).batch(8)
model = network(4, 1, 8)
"""
        + TRAINS.replace("EPOCHS", "3"),
        IN_CALLS,
        frozenset({"pool"}),
    ),
    "a map that burns a core": Case(
        KERAS
        + """
def load(index):
    return tf.sort(tf.random.uniform((40_000,)))[:8], tf.cast(index, tf.float32)
data = tf.data.Dataset.range(800).map(load).batch(8).with_options(untuned())  # its tuner holds up some epochs
model = network(4, 1, 8)
"""
        + TRAINS.replace("EPOCHS", "3"),
        {"parallel": IN_CALLS["parallel"], "prefetch": IN_CALLS["prefetch"]},
        frozenset({"parallel"}),
    ),
    "a source that nothing reads ahead": Case(
        KERAS
        + """
random = np.random.default_rng()
def batches():
    for _ in range(40):
        time.sleep(0.02)
        yield random.random((64, 256), np.float32), np.zeros((64, 1), np.float32)
specs = tf.TensorSpec((64, 256), tf.float32), tf.TensorSpec((64, 1), tf.float32)
data = tf.data.Dataset.from_generator(batches, output_signature=specs).with_options(untuned())
model = network(768, 4, 256)
"""
        + TRAINS.replace("EPOCHS", "3"),
        {"prefetch": {".with_options(untuned())": ".with_options(untuned()).prefetch(2)"}},
        frozenset({"prefetch"}),
    ),
    "decoding that a cache saves": Case(
        KERAS
        + IMAGES.replace("FILTERS", "8")
        + """
data = tf.data.Dataset.from_tensor_slices(files).map(load, num_parallel_calls=2).map(flip).batch(16).prefetch(2)
data = data.with_options(untuned())
"""
        + TRAINS.replace("EPOCHS", "4"),
        {"cache": {".map(flip)": ".cache().map(flip)"}},
        frozenset({"cache"}),
        compared="cache",
    ),
    "a cache that freezes flips": Case(
        KERAS
        + IMAGES.replace("FILTERS", "8")
        + PAUSE
        + """
def draw(image, label):
    return flip(pause(image, 0.004), label)
def weigh(images, labels):
    return pause(images, 0.06), labels
data = tf.data.Dataset.from_tensor_slices(files).map(load).map(draw).cache().batch(16).map(weigh)
data = data.with_options(untuned())
"""
        + TRAINS_TWICE.replace("EPOCHS", "4"),
        {"cache-before-drawing": {".map(draw).cache()": ".cache().map(draw)"}},
        frozenset(),
        compared="cache-before-drawing",
        steady=True,
    ),
    "a cache too large for memory": Case(
        KERAS
        + PAUSE
        + """
import tempfile, psutil
tempfile.tempdir = "/dev/shm"  # a cache on disk would take memory as well
size = int(0.6 * psutil.virtual_memory().available / 400)
def load(index):
    return tf.fill((size,), tf.cast(pause(index, 0.02) % 2, tf.uint8))
def crop(image):
    return tf.cast(image[:8], tf.float32) + tf.random.uniform((8,)), 0.0
data = tf.data.Dataset.range(400).map(load).map(crop).batch(8)
model = network(4, 1, 8)
"""
        + TRAINS.replace("EPOCHS", "1"),
        IN_CALLS,
        frozenset({"pool", "parallel"}),
        compared="parallel",  # 32 calls at once wait for memory, by another amount each time
        untried={"cache": "more than the disk has room for"},
    ),
    "epochs that lose seconds to the tuner": Case(
        KERAS
        + """
def batches():
    for thread in os.listdir("/proc/self/task"):
        set_policy(os.SCHED_OTHER, int(thread))
    for _ in range(60):
        time.sleep(0.044)
        yield np.random.random((8, 8)).astype(np.float32), np.zeros((8,), np.float32)
specs = tf.TensorSpec((8, 8), tf.float32), tf.TensorSpec((8,), tf.float32)
data = tf.data.Dataset.from_generator(batches, output_signature=specs)
model = network(4, 1, 8)
"""
        + LOSES_TO_THE_TUNER
        + TRAINS_TWICE.replace("EPOCHS", "4").replace("[note]", "[note, last]"),
        {
            "tuner-off": {"output_signature=specs)": "output_signature=specs).with_options(untuned())"},
            "repeat": {
                "output_signature=specs)": "output_signature=specs).repeat()",
                "(data, ": "(data, steps_per_epoch=60, ",
            },
        },
        frozenset({"tuner-off", "repeat"}),
        steady=True,
    ),
    "a PyDataset that waits": Case(
        KERAS
        + """
class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 60
    def __getitem__(self, index):
        time.sleep(0.02)
        return np.zeros((8, 8), np.float32), np.zeros((8,), np.float32)
data = Batches()
model = network(4, 1, 8)
"""
        + TRAINS.replace("EPOCHS", "3"),
        {"more-workers": {"Batches()\n": "Batches(workers={workers}, max_queue_size={max_queue_size})\n"}},
        frozenset({"more-workers"}),
        compared="more-workers",  # its batches, which are all the same, may be kept as well
    ),
    "a DataLoader without workers": Case(
        """
import time
import torch
from torch.utils.data import DataLoader
class Slow:
    def __len__(self):
        return 320
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.rand(64), torch.zeros(1)  # no cache may keep these
def main():
    loader = DataLoader(Slow(), batch_size=8, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    took = 0.0
    for epoch in range(6):
        began = time.perf_counter()
        for inputs, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), labels).backward()
            optimizer.step()
        took += time.perf_counter() - began
    print("TOOK", took)
main()
""",
        {
            name: {"shuffle=True)": "shuffle=True, num_workers={num_workers}, persistent_workers=True)"}
            for name in ("workers", "more-workers")
        },
        frozenset({"workers", "more-workers"}),
    ),
    "a DataLoader whose workers start for each short epoch": Case(
        """
import time
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset
def main():
    settings = dict(num_workers=6)
    data = TensorDataset(torch.rand(512, 64), torch.rand(512, 1))
    loader = DataLoader(data, batch_size=32, **settings)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    began = time.perf_counter()
"""
        + TRAINS_A_LOOP.replace("EPOCHS", "20"),
        {
            "fewer-workers": {
                "loader = ": "settings |= dict(num_workers={num_workers}, persistent_workers=True)\n    loader = "
            },
            "persistent": {"loader = ": "settings |= dict(persistent_workers=True)\n    loader = "},
            "no-workers": {"loader = ": "settings |= dict(num_workers=0)\n    loader = "},
            "whole-batches": {
                "batch_size=32": "batch_size=None, sampler=BatchSampler(SequentialSampler(data), 32, False)"
            },
        },
        frozenset({"no-workers"}),
    ),
    "a DataLoader that decodes photos again": Case(
        """
import glob, time
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader
class Photos:
    files = sorted(glob.glob(FILES + "/*.jpg"))[:240]
    def __len__(self):
        return len(self.files)
    def __getitem__(self, index):
        if index >= len(self.files):
            raise IndexError
        image = Image.open(self.files[index]).convert("RGB").resize((48, 48))
        return torch.from_numpy(np.asarray(image, np.float32)).permute(2, 0, 1), len(self.files[index]) % 2
def main():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
                                torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    began = time.perf_counter()
    loader = DataLoader(Photos(), batch_size=16, shuffle=True)
    for epoch in range(6):
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    print("TOOK", time.perf_counter() - began)
main()
""",
        {"cache-samples": {"DataLoader(Photos()": "DataLoader([*Photos()]"}},
        frozenset({"cache-samples"}),
        compared="cache-samples",
    ),
    "a DataLoader that collates rows one by one": Case(
        """
import time
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
def main():
    data = TensorDataset(torch.rand(40_000, 32), torch.rand(40_000, 1))
    loader = DataLoader(data, batch_size=256, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    began = time.perf_counter()
"""
        + TRAINS_A_LOOP.replace("EPOCHS", "8"),
        {
            "whole-batches": {
                "batch_size=256, shuffle=True": "batch_size=None, sampler=BatchSampler(RandomSampler(data), 256, False)"
            }
        },
        frozenset({"whole-batches"}),
        compared="whole-batches",
    ),
}


def took_s(folder: Path, script: str) -> float:
    shown = run_python(folder, script)
    assert shown.returncode == 0, shown.stderr[-3000:]
    return float(re.search(r"TOOK (\S+)", shown.stdout)[1])


def numbers_in(code: str) -> dict[str, str]:
    """Returns the numbers that the code of remedies names, by argument; `calls` for parallel calls."""
    found = dict(re.findall(r"(\w+) ?= ?(\d+)", code))
    return {**found, "calls": found.get("num_parallel_calls", "")}


@planted
@pytest.mark.claims
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.needs("torch")) if "DataLoader" in name else name for name in CASES]
)
def test_the_best_is_chosen_and_gains_what_it_gains_by_hand(
    name: str, tmp_path: Path, real_photos: Path, record_property, tabulate
) -> None:
    case = CASES[name]
    script = case.script.replace("FILES", repr(str(real_photos / "train" / "cats")))
    (tmp_path / "train.py").write_text(script)
    shown = run_python(tmp_path, "-m", "unstall", "profile", "--budget", 80, "--out", "out", "train.py")
    assert shown.returncode == 0, shown.stderr[-3000:]
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    [copies] = document["trials"].values()
    [trial] = document["samples"]["trials"].values()
    chosen = copies["chosen"]
    assert not case.best or (chosen and case.best & set(chosen.split(" + "))), shown.stderr[-3000:]
    untried = {one["name"]: one["reason"] for one in trial["untried"]}
    assert all(words in untried[remedy] for remedy, words in case.untried.items()), untried
    contender = case.compared or chosen
    [gain] = [remedy for remedy in copies["remedies"] if remedy["name"] == contender]
    codes = [remedy["code"] for remedy in trial["remedies"] if remedy["name"] in gain["remedies"]]
    edited = script
    for remedy in gain["remedies"]:
        for old, new in case.edits[remedy].items():
            assert old in edited
            edited = edited.replace(old, new.format(**numbers_in("\n".join(codes))))
    (tmp_path / "edited.py").write_text(edited)
    pairs = [(took_s(tmp_path, "train.py"), took_s(tmp_path, "edited.py")) for _ in range(RUNS)]
    by_hand = geometric_mean([before / after for before, after in pairs])
    promised = gain if case.steady else gain["in_script"]
    low, high = promised["ci95"]
    text = f"{name}: {contender}, {promised['ratio']:.2f} times promised, {by_hand:.2f} times by hand"
    record_property("measured", text)
    cells = (f"{promised['ratio']:.2f}", f"{low:.2f} to {high:.2f}", f"{by_hand:.2f}", f"{low <= by_hand <= high}")
    tabulate("promises", ("script", "remedies", "promised", "95 %", "by hand", "within"), [(name, contender, *cells)])
    assert promised["ratio"] == pytest.approx(by_hand, rel=NEAR), text
