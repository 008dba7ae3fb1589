"""Annotated source of the Python functions that a loader spends its time in."""

from __future__ import annotations

import json
import time
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from profiles.stage_table import AnnotatedFunction
from profiles.stages.lines import annotate
from tests.planted import planted


def slow_part() -> None:
    x = 1
    time.sleep(0.009)
    time.sleep(0.001)
    return x


def fast_part() -> int:
    return sum(range(10))


class Batches(keras.utils.PyDataset):
    @property
    def num_batches(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        slow_part()
        fast_part()
        return np.zeros((2, 3)), np.zeros(2)


def doze(x: np.ndarray) -> np.ndarray:
    time.sleep(0.005)
    return x


def the(annotated: tuple[AnnotatedFunction, ...], name: str) -> AnnotatedFunction:
    (one,) = [one for one in annotated if one.function.endswith(name)]
    return one


@planted
def test_the_expensive_line_of_the_expensive_function_is_found() -> None:
    annotated = annotate(Batches())
    function = the(annotated, "slow_part")
    assert function.location == f"test_lines.py:{slow_part.__code__.co_firstlineno}"
    assert [line.source.strip() for line in function.lines] == [
        "def slow_part() -> None:",
        "x = 1",
        "time.sleep(0.009)",
        "time.sleep(0.001)",
        "return x",
    ]
    assert [line.hits for line in function.lines] == [0, 40, 40, 40, 40]
    assert function.lines[2].ratio == pytest.approx(0.9, abs=0.06)
    assert sum(line.ratio for line in function.lines) == pytest.approx(1)
    assert function.total_us == pytest.approx(40 * 10e3, rel=0.3)


def test_functions_that_take_no_time_are_left_out() -> None:
    assert not [one for one in annotate(Batches()) if one.function.endswith("fast_part")]


def test_functions_behind_numpy_function_are_found() -> None:
    dataset = tf.data.Dataset.range(64).map(lambda x: tf.numpy_function(doze, [x], tf.int64)).batch(4)
    assert [line.source.strip() for line in the(annotate(dataset), "doze").lines][1] == "time.sleep(0.005)"


def test_a_pipeline_of_tensorflow_alone_has_no_lines() -> None:
    assert annotate(tf.data.Dataset.range(64).map(lambda x: x + 1).batch(4)) == ()


def test_lines_survive_strict_json() -> None:
    document = json.loads(json.dumps([one.to_dict() for one in annotate(Batches())], allow_nan=False))
    assert document[0]["lines"][0].keys() == {"number", "source", "hits", "us", "ratio"}
