"""The stage table of each kind of data that a model trains on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import cv2
import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.fakes import FakeClock
from tests.planted import IMAGES, a_batch, a_model, emulated, planted, tensorflow_only
from unstall.profiles.data import adapter
from unstall.profiles.measure.windows import Windows
from unstall.profiles.stage_table import StageTable
from unstall.profiles.stages import python_stages, tf_stages
from unstall.profiles.stages.call_timer import CallTimer


class Photographs(keras.utils.PyDataset):
    """Decodes, works in Python, waits."""

    def __init__(self, path: str, workers: int, use_multiprocessing: bool = False) -> None:
        super().__init__(workers=workers, use_multiprocessing=use_multiprocessing, max_queue_size=4)
        self.path = path

    @property
    def num_batches(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        for _ in range(IMAGES):
            cv2.imread(self.path)
        until = time.thread_time() + 0.012
        while time.thread_time() < until:
            pass
        time.sleep(0.008)
        return a_batch()


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_stages, "ROUNDS", 1)
    monkeypatch.setattr(python_stages, "ROUND_S", 0.1)
    monkeypatch.setattr(tf_stages, "ROUNDS", 1)


@pytest.fixture(scope="module")
def windows() -> Windows:
    windows = Windows(a_model(), emulated(2))
    windows.prepare([a_batch()])
    return windows


@pytest.fixture
def photo(tmp_path: Path) -> str:
    path = tmp_path / "photo.jpg"
    cv2.imwrite(str(path), np.random.default_rng(0).integers(0, 255, (300, 300, 3)).astype(np.uint8))
    return str(path)


def stage_table(data: Any, windows: Windows) -> StageTable:
    return adapter(data).stages_and_lines(data, lambda: windows, lines=False)[0]


def cpu_and_wait_ms(table: StageTable, name: str) -> tuple[float, float]:
    """Milliseconds a batch."""
    (stage,) = [one for one in table.stages if one.name == name]
    return stage.cpu_us_per_image * IMAGES / 1e3, (stage.wait_us_per_image or 0.0) * IMAGES / 1e3


@planted
@pytest.mark.parametrize(
    ("workers", "processes"), [pytest.param(1, False, marks=pytest.mark.claims), (3, False), (2, True)]
)
def test_a_py_dataset_is_split_into_known_calls_and_the_rest(
    windows: Windows, photo: str, workers: int, processes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_stages, "ROUND_S", 0.4)
    table = stage_table(Photographs(photo, workers, processes), windows)
    assert (table.workers, table.workers_seen) == (workers, workers)
    assert {stage.name for stage in table.stages} == {"cv2.imread", "other python"}
    cpu_ms, wait_ms = cpu_and_wait_ms(table, "other python")
    assert cpu_ms == pytest.approx(12, rel=0.15)
    if workers == 1:  # more of them wait for each other, too
        assert wait_ms == pytest.approx(8, rel=0.15)
    began = time.thread_time()
    for _ in range(200):
        cv2.imread(photo)
    assert cpu_and_wait_ms(table, "cv2.imread")[0] == pytest.approx((time.thread_time() - began) * 5 * IMAGES, rel=0.5)


class HandedOn(Photographs):
    """Hands its batches on to worker processes of its own, in which no timer is."""

    worker_processes = True

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("handed on")

    def make_in_caller(self, index: int) -> Any:
        return super().__getitem__(index)


def test_data_with_workers_of_its_own_is_made_where_the_timer_is(
    windows: Windows, photo: str, monkeypatch: Any
) -> None:
    data = HandedOn(photo, 2)
    monkeypatch.setattr(python_stages, "_batches", lambda data, workers: 12)
    table = stage_table(data, windows)
    assert {stage.name for stage in table.stages} == {"cv2.imread", "other python"}
    assert table.rest == "Keras' queue and its copies to tensors, sending batches between processes"


def test_slow_files_of_a_py_dataset_are_named(windows: Windows, photo: str) -> None:
    tail = stage_table(Photographs(photo, 1), windows).tail
    assert tail is not None
    assert tail.slowest[0].name.endswith("/photo.jpg")


@pytest.mark.parametrize(("files", "samples"), [(1, 4), (2, 2), (4, 1)])
def test_the_time_of_a_sample_is_that_of_all_its_files(
    photo: str, monkeypatch: pytest.MonkeyPatch, files: int, samples: int
) -> None:
    clock = FakeClock(monkeypatch)
    timer = CallTimer(files)

    def a_batch_of_four_files() -> None:
        for _ in range(4):
            cv2.imread(photo)
            clock.spend(cpu_s=0.002)

    with timer.installed():
        timer.batch(a_batch_of_four_files, lambda _: samples)
    assert [ns for _, ns in timer.times.image_ns] == [files * 2_000_000] * samples


def test_a_py_dataset_is_told_when_its_epochs_end(windows: Windows, photo: str) -> None:
    ended = []

    class Counted(Photographs):
        def on_epoch_end(self) -> None:
            ended.append(1)

    stage_table(Counted(photo, 1), windows)
    assert ended


@tensorflow_only
def test_a_tf_data_pipeline_shows_its_stages_and_what_ran(windows: Windows) -> None:
    images = np.zeros((64, 2, 2, 3), np.float32)

    def halve(image: Any, label: Any) -> Any:
        return image / 2, label

    dataset = tf.data.Dataset.from_tensor_slices((images, np.zeros((64,), np.float32)))
    table = stage_table(dataset.map(halve, num_parallel_calls=2).batch(IMAGES).prefetch(3), windows)
    (stage,) = [one for one in table.stages if one.name == "halve"]
    (prefetch,) = [one for one in table.stages if one.name == "prefetch"]
    assert stage.parallelism == 2
    assert stage.bytes_per_element == pytest.approx(images[0].nbytes, abs=64)
    assert prefetch.buffer_size == 3
    assert prefetch.buffer_fill_ratio is not None and 0 <= prefetch.buffer_fill_ratio <= 1
    assert table.reason is None


def test_what_can_be_read_once_says_why_it_has_no_stages(windows: Windows) -> None:
    table = stage_table((a_batch() for _ in range(3)), windows)
    assert table.stages == ()
    assert table.reason == "a generator is read once, and from outside: only its waiting can be seen"


@tensorflow_only
def test_a_pipeline_that_cannot_be_cut_says_why(windows: Windows) -> None:
    options = tf.data.Options()
    dataset = tf.data.Dataset.from_tensors(a_batch()).repeat(8).with_options(options)
    grouped = dataset.map(lambda *batch: batch, num_parallel_calls=2).group_by_window(
        lambda *_: np.int64(0), lambda _, window: window, window_size=2
    )
    assert "group_by_window cannot be built again" in str(stage_table(grouped, windows).reason)
