"""Asks `unstall profile` for its verdict on one script, on a quiet machine and beside a neighbour.

The neighbour burns half of the cores, and comes and goes every few seconds. The truth is known from plain runs of the
same training, with its loader and with batches that are ready.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

import unstall
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.truth.measure import Run, neighbours
from unstall.benchmarks.truth.plan import Plan
from unstall.benchmarks.truth.promises import LEAST_RIGHT_RATIO
from unstall.benchmarks.truth.results import PLAIN
from unstall.benchmarks.truth.samples import Attempt, Case, Group
from unstall.profiles import clock
from unstall.profiles.provenance import usable_cores

_TIMEOUT_S, _TRUTH_ROUNDS = 300.0, 7
# How long the neighbour stays, and stays away.
_STAYS_S = (2.0, 8.0)
# A loader that does work of its own on each batch, and nothing ahead; a model that computes for about twice as long.
_SCRIPT = """
import sys
import time
import keras
import tensorflow as tf

STEPS, EPOCHS = 16, 9
keras.utils.set_random_seed(0)
matrix = tf.random.stateless_normal((384, 384), (1, 2)) / 20


def load(number):
    work = matrix
    for _ in range({products}):
        work = tf.tanh(work @ matrix)
    return tf.fill((64, 512), tf.cast(number, tf.float32) / 100) + work[0, 0], tf.zeros((64, 1))


def without_prefetch(dataset):
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.autotune.enabled = False
    return dataset.with_options(options)


layers = [keras.layers.Dense(1024, activation="relu") for _ in range(6)]
model = keras.Sequential([keras.Input((512,)), *layers, keras.layers.Dense(1)])
model.compile("sgd", "mse")
loaded = without_prefetch(tf.data.Dataset.range(STEPS).map(load))
if "--plain" not in sys.argv:
    model.fit(loaded, epochs=EPOCHS, verbose=0)
else:
    batch = next(iter(loaded))
    ready = without_prefetch(tf.data.Dataset.from_tensors(batch).repeat(STEPS))
    times = []
    for data in (loaded, ready) * {rounds}:
        model.fit(data, epochs=1, verbose=0)
        begin = time.perf_counter()
        model.fit(data, epochs=2, verbose=0)
        times.append(time.perf_counter() - begin)
    print(*times)
"""
_PRODUCTS = 20


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Gets ready to run the script."""
    return Run(plan, progress, measure(plan.number("runs")))


def measure(runs: int) -> Generator[Group, None, None]:
    """Runs the script plainly, then as often as asked under `profiles` in each place; yields after each run.

    Raises:
      UserError: if a run fails or hangs.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(_SCRIPT.format(products=_PRODUCTS, rounds=_TRUTH_ROUNDS))
        attempts = {PLAIN: (plain(folder),)}
        for where in LEAST_RIGHT_RATIO:
            burned = 0 if where == "quiet" else max(1, round(usable_cores() / 2))
            with neighbours(burned, _come_and_go, random.random()):  # one seed: all come and go together
                for _ in range(runs):
                    attempts[where] = (*attempts.get(where, ()), profiled(folder))
                    cases = (Case(name=case, attempts=of_case) for case, of_case in attempts.items())
                    yield Group(name="verdicts", cases=tuple(cases))


def plain(folder: Path) -> Attempt:
    """Times epochs with the loader, and with batches that are ready."""
    times = [float(word) for word in _python(folder, "train.py", "--plain").split()]
    return Attempt(answer="", figures={"loaded_s": tuple(times[0::2]), "ready_s": tuple(times[1::2])})


def profiled(folder: Path) -> Attempt:
    """Runs the script under `profiles`, and reads its verdict."""
    out = Path(tempfile.mkdtemp(dir=folder))
    _python(folder, "-m", "profiles", "--no-trial", "--out", str(out), "train.py")
    document = json.loads((out / "results.json").read_text())
    (verdict,) = document["verdicts"]
    return Attempt(answer=verdict["bound"], figures={"loading_ratio": (verdict["loading_ratio"],)})


def _python(folder: Path, *words: str) -> str:
    try:
        ended = _run_python(folder, words)
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{' '.join(words)} did not end within {_TIMEOUT_S:.0f} s.", exit_code=3) from error
    if ended.returncode:
        raise UserError(f"{' '.join(words)} ended with {ended.returncode}: {ended.stderr.strip()[-300:]}", exit_code=3)
    return ended.stdout


def _run_python(folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(unstall.ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def _come_and_go(seed: float) -> None:
    """Burns a core, and leaves it alone, in turns, for as long as the parent process lives."""
    parent, coin = multiprocessing.parent_process(), random.Random(seed)
    while parent is not None and parent.is_alive():
        until_ns = clock.now_ns() + int(coin.uniform(*_STAYS_S) * 1e9)
        while clock.now_ns() < until_ns:
            pass
        clock.sleep_until_ns(clock.now_ns() + int(coin.uniform(*_STAYS_S) * 1e9))
