"""What `unstall profile` says of one script, again and again, on a quiet machine and next to a neighbour.

The neighbour burns half of the cores, and comes and goes every few seconds. The truth is known from plain runs of the
same training, with its loader and with batches that are ready.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.checks import run_python
from tests.truth import neighbours
from unstall.profiles.provenance import usable_cores
from unstall.profiles.results.attribution import bound_of
from unstall.profiles.statistics import Interval, geometric_mean

# Of 40 verdicts: confident and wrong at most, confident and right at least. Source: the design of this project.
MOST_WRONG_RATIO = 2 / 40
LEAST_RIGHT_RATIO = {"quiet": 36 / 40, "next to a neighbour": 20 / 40}
_TRUTH_ROUNDS, _PRODUCTS = 7, 20
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
    times, begins = [], []
    note = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs=None: begins.append(time.perf_counter()))
    for data in (loaded, ready) * {rounds}:
        model.fit(data, epochs=1, verbose=0)
        begins.clear()
        model.fit(data, epochs=2, verbose=0, callbacks=[note])
        times.append(time.perf_counter() - begins[0])  # what `fit` sets up before its first epoch is no loading
    print(*times)
"""


def write_script(folder: Path, rounds: int = _TRUTH_ROUNDS) -> None:
    (folder / "train.py").write_text(_SCRIPT.format(products=_PRODUCTS, rounds=rounds))


def plain_loading(folder: Path) -> float:
    """Returns the share of loading by plain runs: epochs with the loader, and with batches that are ready."""
    times = [float(word) for word in _stdout(run_python(folder, "train.py", "--plain")).split()]
    return loading_of(times[0::2], times[1::2])


def loading_of(loaded_s: Sequence[float], ready_s: Sequence[float]) -> float:
    return 1 - geometric_mean(ready_s) / geometric_mean(loaded_s)


def profiled(folder: Path) -> tuple[str, float]:
    """Runs the script under `unstall profile`. Returns its verdict, and the share of loading."""
    (verdict,) = _results(folder, "--no-trial")["verdicts"]
    return verdict["bound"], verdict["loading_ratio"]


def tried(folder: Path) -> tuple[float, float]:
    """Runs the script under `unstall profile`. Returns the interval of loading that its screen tells."""
    document = _results(folder)
    (verdict,), trials = document["verdicts"], document["trials"].values()
    decided = [trial["loading"]["ci95"] for trial in trials if trial["loading"] and trial["loading"]["ci95"]]
    low, high = decided[0] if decided else verdict["loading_range"]
    return max(low, 0.0), min(high, 1.0)


def _results(folder: Path, *options: str) -> dict[str, Any]:
    out = tempfile.mkdtemp(dir=folder)
    _stdout(run_python(folder, "-m", "unstall", "profile", *options, "--out", out, "train.py"))
    return dict(json.loads((Path(out) / "results.json").read_text()))


def _stdout(ended: subprocess.CompletedProcess[str]) -> str:
    assert ended.returncode == 0, ended.stderr[-300:]
    return ended.stdout


def holds(where: str, right: str, verdicts: Counter[str]) -> bool:
    """Returns whether verdicts are right as often, and wrong as seldom, as promised."""
    runs = verdicts.total()
    wrong = runs - verdicts[right] - verdicts["uncertain"]
    return wrong <= MOST_WRONG_RATIO * runs and verdicts[right] >= LEAST_RIGHT_RATIO[where] * runs


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The script's folder, and the share of loading by plain runs."""
    folder = tmp_path_factory.mktemp("script")
    write_script(folder)
    return folder, plain_loading(folder)


@pytest.mark.slow  # half an hour each
@pytest.mark.timeout(10_000)
@pytest.mark.parametrize("where", LEAST_RIGHT_RATIO)
def test_verdicts_are_right_as_often_as_promised(
    where: str, script: tuple[Path, float], repeats: Any, tabulate: Any
) -> None:
    folder, truth = script
    burned = 0 if where == "quiet" else max(1, round(usable_cores() / 2))
    with neighbours.neighbours(burned, neighbours.come_and_go, random.random()):  # one seed: all come and go together
        bounds, ratios = zip(*(profiled(folder) for _ in range(repeats(40))), strict=True)
    right, verdicts = bound_of(truth), Counter(bounds)
    counts = (
        len(bounds),
        verdicts[right],
        len(bounds) - verdicts[right] - verdicts["uncertain"],
        verdicts["uncertain"],
    )
    found = (f"{truth:.0%}, {right}", f"{min(ratios):.0%} to {max(ratios):.0%}")
    promised = f"{LEAST_RIGHT_RATIO[where]:.0%} right, {MOST_WRONG_RATIO:.0%} wrong"
    columns = ("", "runs", "right", "wrong", "uncertain", "loading, by plain runs", "loading found", "promised")
    tabulate("verdicts", columns, [(where, *map(str, counts), *found, promised)])
    assert holds(where, right, verdicts)


# Of 20 pairs of runs: so many agree; of their 40 intervals so many are narrow, and hold the truth.
LEAST_AGREEING, LEAST_NARROW, LEAST_TRUE, NARROW = 19 / 20, 18 / 20, 18 / 20, 0.20


def agree(pairs: Sequence[tuple[Interval, Interval]], truths: Sequence[float]) -> tuple[float, float, float]:
    """Returns which part of pairs of intervals overlap, and which part of the intervals are narrow, and hold the truth.

    Args:
      truths: of each pair.
    """
    overlap = [max(one[0], other[0]) <= min(one[1], other[1]) for one, other in pairs]
    narrow = [high - low <= NARROW for pair in pairs for low, high in pair]
    right = [low <= truth <= high for pair, truth in zip(pairs, truths, strict=True) for low, high in pair]
    of_overlap, of_narrow, of_right = (sum(some) / len(some) for some in (overlap, narrow, right))
    return of_overlap, of_narrow, of_right


@pytest.mark.slow  # 50 minutes
@pytest.mark.timeout(10_000)
def test_pairs_of_runs_next_to_a_process_that_spins_tell_the_same(tmp_path: Path, repeats: Any, tabulate: Any) -> None:
    write_script(tmp_path, rounds=5)
    with neighbours.neighbours(max(1, usable_cores() // 2), neighbours.burn):
        found = [(plain_loading(tmp_path), (tried(tmp_path), tried(tmp_path))) for _ in range(repeats(20))]
    truths, pairs = zip(*found, strict=True)
    parts = agree(pairs, truths)
    widths = sorted(high - low for pair in pairs for low, high in pair)
    cells = [f"{len(pairs)}", *(f"{part:.0%}" for part in parts), f"{min(truths):.0%} to {max(truths):.0%}"]
    columns = ("pairs", "agree", f"at most {NARROW:.0%} wide", "hold the truth", "loading, by plain runs", "widest")
    tabulate("busy machine", columns, [(*cells, f"{widths[-1]:.0%}")])
    assert all(part >= least for part, least in zip(parts, (LEAST_AGREEING, LEAST_NARROW, LEAST_TRUE), strict=True))


def test_intervals_agree_are_narrow_and_hold_the_truth_or_not() -> None:
    pairs = [((0.4, 0.5), (0.5, 0.6)), ((0.1, 0.35), (0.36, 0.5))]
    assert agree(pairs, [0.5, 0.2]) == (1 / 2, 3 / 4, 3 / 4)


QUIET, CROWDED = LEAST_RIGHT_RATIO


@pytest.mark.parametrize(
    ("quiet", "crowded", "held"),
    [
        ({"input": 36, "uncertain": 4}, {"input": 20, "uncertain": 20}, True),
        ({"input": 35, "uncertain": 5}, {"input": 20, "uncertain": 20}, False),
        ({"input": 38, "compute": 2}, {"input": 38, "balanced": 2}, True),
        ({"input": 40}, {"input": 37, "balanced": 3}, False),
        ({"input": 40}, {"input": 19, "uncertain": 21}, False),
    ],
    ids=["as promised", "hides in the word", "two are wrong", "three are wrong", "hides next to a neighbour"],
)
def test_verdicts_must_be_right_and_must_not_hide(quiet: dict[str, int], crowded: dict[str, int], held: bool) -> None:
    right = bound_of(loading_of([2.0, 2.0], [1.3, 1.3]))
    assert right == "input"
    assert (holds(QUIET, right, Counter(quiet)) and holds(CROWDED, right, Counter(crowded))) is held


def test_a_neighbour_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    lives, sleeps = iter([True, True, False]), iter([1, 2])
    parent = SimpleNamespace(is_alive=lambda: next(lives))
    monkeypatch.setattr(neighbours.multiprocessing, "parent_process", lambda: parent)
    monkeypatch.setattr(neighbours, "_STAYS_S", (0.0, 0.0))
    monkeypatch.setattr(neighbours.clock, "sleep_until_ns", lambda at_ns: next(sleeps))
    neighbours.come_and_go(0.5)
    assert list(sleeps) == []


@pytest.mark.slow
def test_a_script_is_run_and_its_verdict_read(tmp_path: Path) -> None:
    write_script(tmp_path, rounds=1)
    assert 0.05 < plain_loading(tmp_path) < 0.8
    bound, loading_ratio = profiled(tmp_path)
    assert bound in ("compute", "balanced", "input", "uncertain")
    assert -0.5 < loading_ratio < 0.9
