"""Which maps get parallel calls, and which more of them than there are cores."""

from __future__ import annotations

import itertools
import time

import tensorflow as tf

from tests.planted import planted
from tests.profiles.remedies.tf.pipelines import IMAGES, PIPELINES, permute, settings, source, taken_apart


def test_what_an_epoch_does_once_is_no_stage_to_run_in_parallel():
    """As `tuned.py` plans an epoch: one element, from which the batches are cut."""

    def plan(number):
        return tf.random.shuffle(tf.range(IMAGES, dtype=tf.int64))

    def load(indices):
        return tf.ones((8, 8, 8, 3)), indices

    for planned, several in (
        (tf.data.Dataset.range(1).map(plan).rebatch(8), False),
        (source().map(permute).batch(8), True),
    ):
        _, remedies = taken_apart(planned.map(load, num_parallel_calls=2))
        assert ("parallel" in remedies) is several


@planted
def test_a_map_that_waits_gets_more_calls_than_there_are_cores():
    def wait(number):
        time.sleep(0.004)
        return number

    def load(index):
        return tf.ensure_shape(tf.numpy_function(wait, [tf.cast(index, tf.float32)], tf.float32), ())

    data, remedies = taken_apart(source().map(load).batch(8), needs=["waiting"])
    assert remedies["pool"].code.startswith("num_parallel_calls=32, ")
    built = data.built(("pool",), 5)
    assert built.options().threading.private_threadpool_size == 32
    assert ("map", 32, None, False, "default") in settings(built)
    assert "pool" not in taken_apart(PIPELINES["plain"](), needs=["waiting"])[1]
    assert "pool" in taken_apart(PIPELINES["plain"](), needs=["waiting"], only=["pool"])[1]


def test_an_interleave_gets_no_more_calls_than_it_has_inputs():
    data = source().interleave(lambda index: tf.data.Dataset.from_tensors(index), cycle_length=3).batch(8)
    opened, remedies = taken_apart(data, needs=["waiting"], only=["pool", "parallel"])
    assert remedies["pool"].code.startswith("num_parallel_calls=3, ")
    built = opened.built(("pool",), 5)
    assert sum(len(batch) for batch in built) == 5 * 8
    one_by_one = source().interleave(lambda index: tf.data.Dataset.from_tensors(index), cycle_length=1).batch(8)
    assert not taken_apart(one_by_one, needs=["waiting"], only=["pool", "parallel"])[1]


@planted
def test_a_map_that_another_program_stopped_once_does_not_wait():
    calls = itertools.count()

    def stopped_once(number):
        time.sleep(0.2 if next(calls) == IMAGES // 2 else 0)
        return number

    def load(index):
        return tf.ensure_shape(tf.numpy_function(stopped_once, [tf.cast(index, tf.float32)], tf.float32), ())

    assert "pool" not in taken_apart(source().map(load).batch(8), needs=["waiting"])[1]
    assert next(calls) > IMAGES // 2  # it was stopped
