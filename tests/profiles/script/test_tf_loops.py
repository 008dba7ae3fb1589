"""Loops of a script over a `tf.data.Dataset`, with steps in TensorFlow, in Keras, and in JAX behind the host."""

from __future__ import annotations

import json
import re
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.checks import SHORT_PROFILES, run_here, run_python
from tests.planted import planted
from unstall.profiles.data.tf_data import TfDatasets
from unstall.profiles.script.loops import Loops
from unstall.profiles.stages.places import note_places
from unstall.profiles.trial.applying import Applied, Wanted
from unstall.profiles.trial.held_loop import opened_loop
from unstall.profiles.trial.surrogate import BehindTheHost, measure_loop, sleeping

# A loader without a thread of its own, whose batches take so many seconds.
DATA = """
import sys, time
import numpy as np
import tensorflow as tf
waited, worked = [], []
def timed(batches):
    # Yields batches, and notes how long each was waited for, and how long the step with it took.
    batches = iter(batches)
    asked = time.perf_counter()
    for batch in batches:
        came = time.perf_counter()
        yield batch
        waited.append(came - asked)
        asked = time.perf_counter()
        worked.append(asked - came)
def load(index):
    time.sleep({load_s})
    return np.float32(index)
options = tf.data.Options()
options.experimental_optimization.apply_default_optimizations = False
data = tf.data.Dataset.range(16).map(lambda index: tf.ensure_shape(tf.numpy_function(load, [index], tf.float32), ()))
data = data.batch(1).with_options(options)
"""
TAPE = """
import keras
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(1e-4)
@tf.function
def step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(batch[:, None]) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss
for epoch in range(4):
    for batch in timed(data):
        loss = step(batch)
        time.sleep(0.015)
    print(float(loss), float(model.get_weights()[0].sum()))
print("TRUTH", sum(waited[16:]) / (sum(waited[16:]) + sum(worked[16:])), file=sys.stderr)
"""
ON_BATCH = """
import keras
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-4), "mse")
for epoch in range(4):
    for batch in timed(data.as_numpy_iterator()):
        loss = model.train_on_batch(batch, batch)
        time.sleep(0.015)
    print(float(np.ravel(loss)[0]))
print("TRUTH", sum(waited[16:]) / (sum(waited[16:]) + sum(worked[16:])), file=sys.stderr)
"""
# A step of about 30 ms, which the device computes behind the host, beside the loading of the next batch.
JAX = """
import jax, jax.numpy as jnp
@jax.jit
def step(weights, batch):
    return jax.lax.fori_loop(0, {turns}, lambda turn, value: jnp.tanh(value @ value) * 0.01 + batch, weights)
weights = jnp.ones((256, 256))
for epoch in range(5):
    for batch in data.as_numpy_iterator():
        weights = step(weights, batch[0])
    weights.block_until_ready()
print(float(weights.sum()))
"""


def watched(folder: Path, script: str) -> tuple[str, float, dict[str, Any]]:
    """Returns what a script prints when it is watched, the waiting by its own clock, and the result of its loop."""
    (folder / "train.py").write_text(textwrap.dedent(script))
    shown = run_python(folder, "-c", SHORT_PROFILES, "--no-trial", "--out", "out", "train.py")
    assert shown.returncode == 0, shown.stderr[-3000:]
    document = json.loads((folder / "out" / "results.json").read_text())
    [result] = document["results"]
    truth = re.search(r"TRUTH (\S+)", shown.stderr)
    return shown.stdout, float(truth[1]) if truth else 0.0, result


@pytest.mark.long
@planted
@pytest.mark.parametrize(
    "steps",
    [pytest.param(TAPE, id="GradientTape"), pytest.param(ON_BATCH, id="train_on_batch", marks=pytest.mark.slow)],
)
def test_the_waiting_of_a_loop_is_found_and_the_script_prints_what_it_printed(steps: str, tmp_path: Path) -> None:
    script = DATA.format(load_s=0.02) + steps
    printed, truth, result = watched(tmp_path, script)
    (tmp_path / "plain.py").write_text(DATA.format(load_s=0) + steps.replace("time.sleep(0.015)", "pass"))
    plain, _ = run_here(tmp_path / "plain.py")
    assert printed == plain and plain.count("\n") == 4
    assert result["variant"].startswith("loop 1 (train.py:") and result["model"] == "a loop"
    assert 0.2 < truth < 0.8
    waiting, compute = (result["attribution"][part] for part in ("prep_stall", "compute"))
    assert waiting / (waiting + compute) == pytest.approx(truth, abs=0.03)


@pytest.mark.long
@planted
@pytest.mark.needs("jax")
def test_a_device_behind_the_host_waits_only_once_it_is_free(tmp_path: Path) -> None:
    """The loader works beside the device: of 60 ms of loading, the device computes in some 30 ms."""
    timed = """
turns = 1
while True:
    step = jax.jit(lambda value: jax.lax.fori_loop(
        0, turns, lambda turn, value: jnp.tanh(value @ value) * 0.01, value))
    step(jnp.ones((256, 256))).block_until_ready()
    began = time.perf_counter()
    step(jnp.ones((256, 256))).block_until_ready()
    took = time.perf_counter() - began
    if took > 0.03:
        break
    turns = max(turns + 1, int(turns * 0.031 / max(took, 1e-3)))
"""
    head, loop = JAX.split("@jax.jit")
    script = DATA.format(load_s=0.06) + head + timed + "@jax.jit" + loop.format(turns="turns")
    script += "print('STEP', took)"
    printed, _, result = watched(tmp_path, script)
    assert result["training"]["waited_for_ratio"] < 0.2
    assert result["training"]["fetching_ratio"] > 0.7  # the host has nothing else to do, whatever the device does
    step_s = float(printed.split("STEP")[1])
    assert result["attribution"]["prep_stall"] == pytest.approx(1 - step_s / 0.061, abs=0.12)


@contextmanager
def attached(loops: Loops) -> Iterator[Loops]:
    """Tells the loops of each pass over a `tf.data.Dataset` until the block ends."""
    restore = TfDatasets().attach(loops)
    try:
        yield loops
    finally:
        restore()


@pytest.fixture
def loops() -> Iterator[Loops]:
    with attached(Loops(max_steps=None)) as loops:
        yield loops


def waiting_data() -> Any:
    """24 batches, each after 20 ms of waiting, of which each is waited for."""

    def wait(index: Any) -> Any:
        time.sleep(0.02)
        return np.float32(index)

    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    data = tf.data.Dataset.range(24).map(
        lambda index: tf.ensure_shape(tf.numpy_function(wait, [index], tf.float32), ())
    )
    return data.batch(1).with_options(options)


@pytest.mark.long
@planted
def test_remedies_are_tried_on_the_data_of_a_loop_with_computing_in_the_place_of_its_steps() -> None:
    """Steps of 20 ms and as much waiting: with the batches made beside the steps, a batch takes half as long."""
    with attached(Loops(max_steps=None, tries=True)) as loops:
        data = waiting_data()
        for _ in range(2):
            for _ in data:
                time.sleep(0.02)
    held = loops.longest
    assert held is not None and held.epochs == 2 and not held.behind
    loops._max_steps = 1  # how many epochs there would have been without that limit is nowhere to be seen
    assert loops.longest is not None and loops.longest.epochs is None
    with opened_loop(held, ["waiting"]) as (opened, measure):
        assert "prefetch" in [remedy.name for remedy in opened.remedies]
        assert "stands in" in opened.notes[0]
        rates = []
        for names in ((), ("prefetch",)):
            built = opened.built(names, 24)
            rates.append(min(measure(built, 1, "train", number, 60.0).s_per_image for number in range(2)))
    assert rates[0] / rates[1] == pytest.approx(2.0, rel=0.15)


@pytest.mark.long
@planted
def test_a_step_behind_the_host_takes_its_time_beside_the_loading_of_the_next_batch() -> None:
    data, beside, after = waiting_data(), BehindTheHost(sleeping(0.02)), sleeping(0.02)
    with closing(beside):
        s_per_image = [
            min(measure_loop(step, data, 1, "train", 0, 60.0).s_per_image for _ in range(2)) for step in (beside, after)
        ]
    assert s_per_image[1] / s_per_image[0] == pytest.approx(2.0, rel=0.15)


def steps_over(data: Any) -> None:
    for _ in data:
        pass


@pytest.mark.parametrize("names", [(), ("prefetch",)])
def test_data_of_two_places_that_one_function_loops_over_are_two_loops(names: tuple[str, ...]) -> None:
    applies = Applied([Wanted(names=names)]) if names else None
    end_notes = note_places(tf.data.Dataset)
    try:
        with attached(Loops(max_steps=None, applies=applies)) as loops:
            valid = tf.data.Dataset.range(24).batch(4)
            for _ in range(3):
                steps_over(tf.data.Dataset.range(48).batch(4))
                steps_over(valid)
    finally:
        end_notes()
    assert [[epoch.images for epoch in fit.epochs] for fit in loops.fits] == [[48] * 3, [24] * 3]


@pytest.mark.long
def test_remedies_are_put_in_place_of_what_a_loop_reads() -> None:
    applied = Applied([Wanted(names=("prefetch",))])
    with attached(Loops(max_steps=None, applies=applied)) as loops:
        seen = [float(batch[0]) for _ in range(2) for batch in waiting_data().take(3)]
    assert seen == [0.0, 1.0, 2.0] * 2
    [place] = applied.done
    assert applied.done[place] == "prefetch" and applied.only(loops.fits[0].place) == ("prefetch",)


@pytest.mark.parametrize(("left_in", "refused"), [((0, 1), True), ((0,), False), ((), False)])
def test_a_loop_that_always_leaves_its_data_by_break_is_offered_no_cache(
    left_in: tuple[int, ...], refused: bool
) -> None:
    data = tf.data.Dataset.range(64).map(lambda number: number + 1).batch(8)
    with attached(Loops(max_steps=None, tries=True)) as loops:
        for epoch in range(2):
            for step, _ in enumerate(data):
                if step == 5 and epoch in left_in:
                    break
    loops.pause()
    held = loops.longest
    assert held is not None and held.left is refused
    with opened_loop(held, ["waiting"]) as (opened, _):
        assert any("not read to its end" in one.reason for one in opened.untried) is refused


def test_an_iterator_stays_what_tensorflow_expects_and_ends_its_pass_by_every_way(loops: Loops) -> None:
    data = tf.data.Dataset.range(6)

    @tf.function
    def in_graph(iterator: Any) -> Any:
        return next(iterator)

    iterator = iter(data)
    assert isinstance(iterator, tf.data.Iterator) and int(in_graph(iterator)) == 0
    assert [int(value) for value in iterator] == [1, 2, 3, 4, 5]
    iterator = iter(data)
    assert [int(iterator.get_next()) for _ in range(6)] == list(range(6))
    with pytest.raises(tf.errors.OutOfRangeError):
        iterator.get_next()
    assert [len(fit.epochs) for fit in loops.fits] == [1, 1]
    assert [fit.epochs[0].whole for fit in loops.fits] == [True, True]


def test_reading_of_our_own_is_no_loop_of_the_scripts(loops: Loops) -> None:
    from unstall.profiles.remedies.room import Room
    from unstall.profiles.remedies.tf.tf_data_rebuilt import TfData

    data = tf.data.Dataset.range(64).map(lambda value: value + 1).batch(4)
    TfData(data, needs=["waiting"], room=Room(calls=2, memory_bytes=1e9, disk_bytes=1e9))
    assert loops.fits == []


def test_steps_that_trace_again_and_again_are_counted_behind_the_first_ones(loops: Loops) -> None:
    @tf.function
    def square(value: Any, number: int) -> Any:
        return value * value + number

    @tf.function(reduce_retracing=True)
    def steady(value: Any) -> Any:
        return value + 1

    for number, batch in enumerate(tf.data.Dataset.range(12)):
        square(batch, number)  # a Python number is a part of the trace
    for batch in tf.data.Dataset.range(12).batch(1):
        steady(batch)
    retracing, other = (fit.facts.retraced for fit in loops.fits)
    assert retracing is not None and other is None
    assert retracing.function == "square" and retracing.count == 10 and 0.05 < retracing.ratio <= 1


def test_what_tf_data_does_in_a_graph_is_not_touched(loops: Loops) -> None:

    @tf.function
    def total(data: Any) -> Any:
        result = tf.constant(0, tf.int64)
        for value in data:
            result += value
        return result

    assert int(total(tf.data.Dataset.range(5))) == 10
    assert loops.fits == []
