"""Stages of known cost, busy and waiting, found again in a tf.data pipeline."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.planted import Sleeper, planted, repeated
from unstall.profiles.stage_table import Stage, StageTable
from unstall.profiles.stages import tf_stages
from unstall.profiles.stages.tf_graph import CutError, nodes
from unstall.profiles.stages.tf_model import NodeState, look, written
from unstall.profiles.stages.tf_stages import tfdata_table

# Long against what a call of Python from TensorFlow costs: 0.1 ms, and several times that after a pause.
BUSY_MS, DOZE_MS = 20.0, 16.0
SLEEP = Sleeper(DOZE_MS)
# Hashed in some 0.05 ms.
_HASHED = bytes(2**16)


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the runs of a cut, of the pipeline as written and of single images short: that is exact enough."""
    monkeypatch.setattr(tf_stages, "RUN_S", 0.05)
    monkeypatch.setattr(tf_stages, "_WHOLE_BATCHES", tf_stages.LEAST_BATCHES)
    monkeypatch.setattr(tf_stages, "TAIL_S", 0.2)


@pytest.fixture
def long_whole(short_runs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the pipeline as written for longer: what it costs is asserted."""
    monkeypatch.setattr(tf_stages, "_WHOLE_BATCHES", 16)


@pytest.fixture(autouse=True)
def sleep(monkeypatch: pytest.MonkeyPatch) -> Sleeper:
    """What `doze` calls. On a loaded machine it sleeps longer than it was asked to, and knows how long."""
    monkeypatch.setattr(sys.modules[__name__], "SLEEP", Sleeper(DOZE_MS))
    return SLEEP


@pytest.fixture
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf_stages, "ROUNDS", 1)


def busy(x: np.ndarray) -> np.ndarray:
    """Computes without Python's lock, which would keep those that sleep at the same time from going on."""
    until = time.thread_time() + BUSY_MS / 1e3
    while time.thread_time() < until:
        hashlib.sha256(_HASHED)
    return x


def doze(x: np.ndarray) -> np.ndarray:
    SLEEP()
    return x


def locked(x: np.ndarray) -> np.ndarray:
    """Computes in Python, and so keeps Python's lock: one of these runs at a time."""
    until = time.thread_time() + BUSY_MS / 1e3
    while time.thread_time() < until:
        pass
    return x


def busy_stage(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(busy, [x], tf.int64), x.shape)


def locked_stage(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(locked, [x], tf.int64), x.shape)


def doze_stage(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(doze, [x], tf.int64), x.shape)


def found(table: StageTable, name: str) -> Stage:
    (stage,) = [one for one in table.stages if one.name == name]
    return stage


def columns(dataset: Any, *names: str) -> list[tuple[float, float]]:
    """The (CPU, wait) of stages, milliseconds an image."""
    table = tfdata_table(dataset, cores=2)
    stages = [found(table, name) for name in names]
    return [(one.cpu_us_per_image / 1e3, (one.wait_us_per_image or 0.0) / 1e3) for one in stages]


PLANTED = {
    "sequential": lambda data: data.map(busy_stage).map(doze_stage).batch(2),
    "parallel": lambda data: data.map(busy_stage, num_parallel_calls=2).map(doze_stage, num_parallel_calls=4).batch(2),
    "autotuned": lambda data: (
        data.map(busy_stage, num_parallel_calls=tf.data.AUTOTUNE)
        .map(doze_stage, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(2)
        .prefetch(tf.data.AUTOTUNE)
    ),
}


@pytest.mark.long
@planted
@pytest.mark.parametrize(
    "kind", ["autotuned", *(pytest.param(kind, marks=pytest.mark.claims) for kind in ("sequential", "parallel"))]
)
def test_busy_and_waiting_stages_are_found_within_a_tenth(kind: str, sleep: Sleeper, one_round: None) -> None:
    dataset = PLANTED[kind](tf.data.Dataset.range(400).shuffle(16))
    (busy_cpu, busy_wait), (doze_cpu, doze_wait) = columns(dataset, "busy_stage", "doze_stage")
    assert busy_cpu == pytest.approx(BUSY_MS, rel=0.1)
    assert doze_wait == pytest.approx(sleep.take_ms(), rel=0.1)
    assert abs(busy_wait) < 0.1 * BUSY_MS
    assert abs(doze_cpu) < 0.1 * DOZE_MS


@planted
def test_a_stage_of_whole_batches_is_charged_by_the_image(sleep: Sleeper, one_round: None) -> None:
    # The busy stage comes last: on a loaded machine it waits for a core, and stages behind it would be measured worse.
    dataset = tf.data.Dataset.range(400).batch(8).map(doze_stage).map(busy_stage)
    (busy_cpu, _), (_, doze_wait) = columns(dataset, "busy_stage", "doze_stage")
    assert busy_cpu == pytest.approx(BUSY_MS / 8, rel=0.1)
    assert doze_wait == pytest.approx(sleep.take_ms() / 8, rel=0.1)


@planted
@pytest.mark.parametrize("into", ["rebatch", "unbatch"])
def test_a_stage_that_gives_many_batches_at_a_time_is_charged_by_the_image(into: str, one_round: None) -> None:
    data = tf.data.Dataset.range(6000).shuffle(16).batch(60).map(busy_stage)
    data = data.rebatch(4) if into == "rebatch" else data.unbatch().batch(4)
    ((busy_cpu, _),) = columns(data.map(lambda x: x + 1), "busy_stage")
    assert busy_cpu == pytest.approx(BUSY_MS / 60, rel=0.1)


def test_a_source_that_has_given_all_it_had_while_others_go_on_is_no_error(one_round: None) -> None:
    filled = tf.data.Dataset.range(200).cache()
    assert len(list(filled)) == 200
    draws = tf.data.Dataset.range(1).flat_map(lambda _: tf.data.Dataset.range(200))
    dataset = tf.data.Dataset.zip((filled.shuffle(120), draws)).map(lambda x, y: x + y).batch(4)
    ratios = tf_stages._counts(pipeline := nodes(dataset), tf_stages.rebuilt(pipeline)).per_image
    assert [ratio for node, ratio in zip(pipeline, ratios, strict=True) if node.kind in ("cache", "batch")] == [1, 0.25]


@pytest.mark.slow
@planted
def test_images_that_a_filter_drops_cost_those_that_remain(one_round: None) -> None:
    dataset = tf.data.Dataset.range(400).map(busy_stage).filter(lambda x: x % 2 == 0).batch(2)
    ((busy_cpu, _),) = columns(dataset, "busy_stage")
    assert busy_cpu == pytest.approx(2 * BUSY_MS, rel=0.1)


@pytest.mark.long
@planted
def test_the_cpu_column_sums_to_the_loaders_own_cpu_time(one_round: None, long_whole: None) -> None:
    dataset = PLANTED["parallel"](tf.data.Dataset.range(400))
    table = tfdata_table(dataset, cores=2)
    assert table.cpu_us_per_image == pytest.approx(table.loader_cpu_us_per_image, rel=0.1)


def test_a_culprit_is_named_with_its_place_and_its_language(one_round: None) -> None:
    stage = tfdata_table(tf.data.Dataset.range(200).map(doze_stage).batch(2), cores=2).culprit
    assert stage is not None
    assert (stage.name, stage.kind, stage.python) == ("doze_stage", "map", True)
    assert stage.location == f"test_tf_stages.py:{doze_stage.__code__.co_firstlineno}"


@pytest.mark.slow
@planted
def test_python_code_that_holds_the_lock_does_not_run_in_parallel(one_round: None, long_whole: None) -> None:
    table = tfdata_table(tf.data.Dataset.range(400).map(locked_stage, num_parallel_calls=4).batch(2), cores=2)
    assert table.effective_parallelism == pytest.approx(1, abs=0.2)


def test_bytes_are_those_of_an_element(one_round: None) -> None:
    image = np.zeros((10, 10, 3), np.float32)
    dataset = tf.data.Dataset.range(64).map(lambda _: tf.constant(image)).batch(4)
    table = tfdata_table(dataset, cores=2)
    assert found(table, "<lambda>").bytes_per_element == pytest.approx(image.nbytes, abs=64)


@planted
def test_slow_images_are_found_by_their_file(one_round: None, tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.jpg") for number in range(40)]

    def slow_for_one(path: bytes) -> np.int64:
        time.sleep(0.03 if path.endswith(b"/17.jpg") else 0.001)
        return np.int64(0)

    def load(path: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(slow_for_one, [path], tf.int64), ())

    dataset = tf.data.Dataset.from_tensor_slices(paths).shuffle(40).map(load, num_parallel_calls=2).batch(8)
    tail = tfdata_table(dataset, cores=2).tail
    assert tail is not None
    assert tail.slowest[0].name == f"{tmp_path.name}/17.jpg"
    assert tail.slowest[0].us == pytest.approx(30e3, rel=0.3)
    assert 1e3 < tail.p50_us < 15e3


@pytest.mark.parametrize(
    ("element", "name"),
    [
        (b"/data/train/cats/1.jpg", "cats/1.jpg"),
        (b"C:\\photos\\1.png", "C:\\photos\\1.png"),
        (b"gs://bucket/part-00001", "bucket/part-00001"),
        (b"my photos/cat 1.jpeg", "my photos/cat 1.jpeg"),
        (b"0.607,0.361,0.179", "element 7"),
        (b"A film and/or a play. I liked the end.", "element 7"),
        (b"d/" + b"x" * 5000 + b".jpg", "element 7"),
    ],
)
def test_only_a_path_names_a_sample(element: bytes, name: str) -> None:
    assert tf_stages._label([tf.constant(element)], 7, None) == name


def test_an_index_is_named_by_the_list_of_names(one_round: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf_stages, "TAIL_S", 10.0)
    dataset = tf.data.Dataset.range(20).map(doze_stage).batch(2)
    tail = tfdata_table(dataset, cores=2, names=[f"cats/{number}.jpg" for number in range(20)]).tail
    assert tail is not None
    assert all(one.name.startswith("cats/") for one in tail.slowest)


def test_a_pipeline_without_batches_is_refused() -> None:
    with pytest.raises(CutError, match="it gives no batch"):
        tfdata_table(tf.data.Dataset.range(0).batch(4), cores=2)


@pytest.mark.slow
@planted
def test_a_data_set_of_one_batch_has_a_table(one_round: None) -> None:
    table = tfdata_table(tf.data.Dataset.range(8).map(doze_stage).batch(8), cores=2)
    assert found(table, "doze_stage").wait_us_per_image == pytest.approx(DOZE_MS * 1e3, rel=0.2)


def read(dataset: Any, batches: int = 6) -> dict[int, NodeState]:
    iterator = iter(dataset)
    for _ in range(batches):
        next(iterator)
    seen = look(iterator, nodes(dataset))
    assert seen is not None
    return seen


def test_what_was_written_as_a_number_is_seen_so() -> None:
    dataset = tf.data.Dataset.range(400).map(doze_stage, num_parallel_calls=3).batch(8).prefetch(5)
    seen = read(dataset)
    assert (seen[1].parallelism, seen[1].tunable) == (3, False)
    assert seen[3].buffer_size == 5


def test_what_autotune_chose_is_seen() -> None:
    dataset = tf.data.Dataset.range(4000).map(doze_stage, num_parallel_calls=tf.data.AUTOTUNE).batch(8)
    seen = read(dataset)
    assert seen[1].tunable
    assert (seen[1].parallelism or 0) >= 1
    assert written(nodes(dataset)[1].dataset) == (None, None, True)


def test_a_buffer_that_nobody_empties_is_full() -> None:
    dataset = tf.data.Dataset.range(400).batch(8).prefetch(4)
    iterator = iter(dataset)
    next(iterator)
    for _ in range(100):
        seen = look(iterator, nodes(dataset)) or {}
        if seen[2].buffered == 4:
            break
        time.sleep(0.02)
    assert seen[2].buffered == 4


@repeated
def test_elements_are_counted_through_two_branches() -> None:
    left = tf.data.Dataset.range(400).map(lambda x: x + 1)
    right = tf.data.Dataset.range(1).flat_map(lambda _: tf.data.Dataset.range(400))
    seen = read(tf.data.Dataset.zip((left, right)).map(lambda x, y: x + y).batch(10), 3)
    # tf.data may have a batch or two more in the making.
    assert [seen[at].elements for at in (1, 3)] == pytest.approx([seen[4].elements] * 2, abs=2)
    assert 30 <= seen[4].elements <= 60
    assert 3 <= seen[6].elements <= 6


def test_without_a_model_nothing_is_seen() -> None:
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = tf.data.Dataset.range(8).batch(2).with_options(options)
    iterator = iter(dataset)
    next(iterator)
    assert look(iterator, nodes(dataset)) is None
    assert look(iter([1]), nodes(dataset)) is None
