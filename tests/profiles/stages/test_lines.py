"""Annotated source of the Python functions that a loader spends its time in."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.checks import run_python
from tests.planted import planted
from unstall.profiles.stage_table import AnnotatedFunction
from unstall.profiles.stages.lines import annotate


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
        return 20

    def __getitem__(self, index: int) -> Any:
        slow_part()
        fast_part()
        return np.zeros((2, 3)), np.zeros(2)


def doze(x: np.ndarray) -> np.ndarray:
    time.sleep(0.005)
    return x


@pytest.fixture(scope="module")
def annotated() -> tuple[AnnotatedFunction, ...]:
    return annotate(Batches())


def named(functions: tuple[AnnotatedFunction, ...], name: str) -> AnnotatedFunction:
    (function,) = [function for function in functions if function.function.endswith(name)]
    return function


def test_the_expensive_line_of_the_expensive_function_is_found(annotated: tuple[AnnotatedFunction, ...]) -> None:
    function = named(annotated, "slow_part")
    assert function.location == f"test_lines.py:{slow_part.__code__.co_firstlineno}"
    assert [line.source.strip() for line in function.lines] == [
        "def slow_part() -> None:",
        "x = 1",
        "time.sleep(0.009)",
        "time.sleep(0.001)",
        "return x",
    ]
    assert [line.hits for line in function.lines] == [0, 20, 20, 20, 20]
    assert sum(line.ratio for line in function.lines) == pytest.approx(1)


@planted
def test_lines_are_charged_their_own_time() -> None:
    function = named(annotate(Batches()), "slow_part")
    assert function.lines[2].ratio == pytest.approx(0.9, abs=0.06)
    assert function.total_us == pytest.approx(20 * 10e3, rel=0.3)


def test_functions_that_take_no_time_are_left_out(annotated: tuple[AnnotatedFunction, ...]) -> None:
    assert not [function for function in annotated if function.function.endswith("fast_part")]


def test_functions_behind_numpy_function_are_found() -> None:
    dataset = tf.data.Dataset.range(64).map(lambda x: tf.numpy_function(doze, [x], tf.int64)).batch(4)
    assert [line.source.strip() for line in named(annotate(dataset), "doze").lines][1] == "time.sleep(0.005)"


def test_a_pipeline_of_tensorflow_alone_has_no_lines() -> None:
    assert annotate(tf.data.Dataset.range(64).map(lambda x: x + 1).batch(4)) == ()


def test_lines_survive_strict_json(annotated: tuple[AnnotatedFunction, ...]) -> None:
    document = json.loads(json.dumps([asdict(function) for function in annotated], allow_nan=False))
    assert document[0]["lines"][0].keys() == {"number", "source", "hits", "us", "ratio"}


ROWS = """
import time

class Rows:
    def __len__(self):
        return 20

    def __getitem__(self, index):
        half = index / 2
        time.sleep(0.002)
        return half
"""
WITHOUT = """
import sys
for name in ("tensorflow", "keras"):
    sys.modules[name] = None
from torch.utils.data import DataLoader
from rows import Rows
from unstall.profiles.stages.lines import annotate
(found,) = annotate(DataLoader(Rows()))
slowest = max(found.lines, key=lambda line: line.us)
print(found.function, slowest.source.strip(), slowest.ratio > 0.8)
"""


@pytest.mark.needs("torch")
def test_the_lines_of_a_map_style_data_set_are_found_without_keras(tmp_path):
    (tmp_path / "rows.py").write_text(ROWS)
    shown = run_python(tmp_path, "-c", WITHOUT)
    assert shown.stdout == "Rows.__getitem__ time.sleep(0.002) True\n", shown.stderr
