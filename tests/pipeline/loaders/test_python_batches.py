"""Batches without tf.data: the same ones, by the caller or by processes, and never those of another epoch."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import multiprocessing
import os
import re
import signal
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from tests import PROJECT_ROOT
from tests.builders import build_fed
from tests.checks import assert_gone, children
from unstall.pipeline import VARIANTS, ConfigError, PipelineConfig, build, from_arrays, from_folder
from unstall.pipeline.loaders import python_batches
from unstall.pipeline.loaders import workers as watched
from unstall.pipeline.loaders.python_batches import PythonBatches
from unstall.pipeline.loaders.workers import WorkerError

CONFIG = dataclasses.replace(VARIANTS["tf-data-composed"], shuffle_buffer=0)
IMAGES, BATCH = 40, 7


def batches_of(batch_size: int = BATCH, **settings: Any) -> PythonBatches:
    """Batches of pictures whose number is all that is in them."""
    images = np.repeat(np.arange(IMAGES, dtype=np.uint8), 8 * 8 * 3).reshape(-1, 8, 8, 3)
    config = dataclasses.replace(
        VARIANTS["tf-data-raw"], storage="files", image_size=(8, 8), batch_size=batch_size, output_dtype="uint8"
    )
    return PythonBatches(from_arrays(images, np.arange(IMAGES) % 2), config, **settings)


def numbers(batches: Any) -> list[int]:
    return [int(image[0, 0, 0]) for images, _ in batches for image in images]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("storage", ["files", "raw"])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_they_are_those_of_tf_data(photos, storage, dtype, workers):
    assert_those_of_tf_data(photos, storage, dtype, workers)


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("storage", ["files", "raw"])
@pytest.mark.parametrize("large", [False, True])
def test_of_a_long_epoch_or_a_large_file_they_are_those_of_tf_data(photos, large, storage, workers, monkeypatch):
    if large:
        monkeypatch.setattr("unstall.pipeline.sources.stored._free_bytes", lambda: 0)
    monkeypatch.setattr("unstall.pipeline.stages.epochs.LONG_EPOCH", 5)
    monkeypatch.setattr("unstall.pipeline.stages.order.PLANNED_AT_ONCE", 7)
    monkeypatch.setattr(python_batches, "PLANNED_AT_ONCE", 16)
    assert_those_of_tf_data(photos, storage, "uint8", workers)


def assert_those_of_tf_data(photos, storage, dtype, workers):
    config = dataclasses.replace(CONFIG, storage=storage, output_dtype=dtype, shuffle_buffer=512, batch_size=16)
    batches = PythonBatches(from_folder(photos), config, workers=workers)
    assert len(batches) == 3
    for images, labels in build_fed(config, from_folder(photos), 2):
        served = list(batches)
        assert [len(part) for part, _ in served] == [16, 16, 8]
        np.testing.assert_array_equal(np.concatenate([part for part, _ in served]), images)
        np.testing.assert_array_equal(np.concatenate([part for _, part in served]), labels)
    batches.close()


@pytest.mark.parametrize("at_once", [7, 30, 8192])
@pytest.mark.parametrize("batch_size", [1, 7, 40])
def test_they_are_the_same_for_any_number_of_workers(batch_size, at_once, monkeypatch):
    """Each worker plans its own turns of each part of an epoch, which begin elsewhere in every epoch."""
    monkeypatch.setattr(python_batches, "PLANNED_AT_ONCE", at_once)
    by_workers = {}
    for workers in (0, 1, 2, 5):
        batches = batches_of(batch_size, workers=workers)
        by_workers[workers] = [[(images.copy(), labels.copy()) for images, labels in batches] for _ in range(3)]
        batches.close()
    for epochs in by_workers.values():
        for epoch, expected in zip(epochs, by_workers[0], strict=True):
            for (images, labels), (expected_images, expected_labels) in zip(epoch, expected, strict=True):
                np.testing.assert_array_equal(images, expected_images)
                np.testing.assert_array_equal(labels, expected_labels)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"decode": "scaled", "storage": "records"},
        {"interpolation": "nearest", "storage": "resized"},
        {"augment_with": "albumentations"},
        {"augmentation": None},
        {"resample": "composed"},
    ],
    ids=lambda changes: " ".join(map(str, changes.values())) or "separate",
)
@pytest.mark.parametrize("long_epoch", [5, 1 << 16])
def test_they_are_those_of_a_py_dataset(photos, changes, workers, long_epoch, monkeypatch):
    monkeypatch.setattr("unstall.pipeline.stages.epochs.LONG_EPOCH", long_epoch)
    config = PipelineConfig(loader="py_dataset", augment_with="opencv", image_size=(24, 16), batch_size=16)
    config = dataclasses.replace(config, **changes)
    batches = PythonBatches(from_folder(photos), config, workers=workers)
    with build(config, from_folder(photos)) as loader:
        for served in (list(batches), list(batches)):
            expected = [loader.data[index] for index in range(len(batches))]
            for (images, labels), (expected_images, expected_labels) in zip(served, expected, strict=True):
                np.testing.assert_array_equal(images, expected_images)
                np.testing.assert_array_equal(labels, expected_labels)
            loader.data.on_epoch_end()
    batches.close()


def test_what_they_cannot_make_is_refused(photos):
    for config, message in (
        (
            PipelineConfig(),
            "`augment_with` must be one of opencv, albumentations for batches made in Python. Received: ",
        ),
        (PipelineConfig(augmentation=None, cache="memory"), "`cache` must be 'none' for batches made in Python: "),
    ):
        with pytest.raises(ConfigError, match=message):
            PythonBatches(from_folder(photos), config)
    with pytest.raises(ConfigError, match="`workers` must be 0 or more. Received: workers=-1."):
        batches_of(workers=-1)


@pytest.mark.parametrize("workers", [0, 3])
def test_an_epoch_that_is_broken_off_leaves_nothing_to_the_next(workers):
    whole = batches_of(workers=0)
    epochs = [numbers(whole) for _ in range(4)]
    assert epochs[0] != epochs[1]
    batches = batches_of(workers=workers)
    for _ in batches:
        break
    assert numbers(batches) == epochs[1]
    kept = iter(batches)  # still there when the next one begins
    next(kept)
    assert numbers(iter(batches)) == epochs[3]
    batches.close()


def test_workers_agree_on_the_order_whatever_memory_is_free_by_then(photos, monkeypatch):
    config = dataclasses.replace(VARIANTS["tf-data-raw"], batch_size=4, output_dtype="uint8")
    expected = list(PythonBatches(from_folder(photos), config))
    answers = multiprocessing.Value("i", 0)

    def now_much_now_little() -> Any:
        with answers.get_lock():
            answers.value += 1
            return SimpleNamespace(available=2**40 if answers.value % 2 else 0)

    monkeypatch.setattr(psutil, "virtual_memory", now_much_now_little)
    batches = PythonBatches(from_folder(photos), config, workers=2)
    for (images, labels), (expected_images, expected_labels) in zip(batches, expected, strict=True):
        np.testing.assert_array_equal(images, expected_images)
        np.testing.assert_array_equal(labels, expected_labels)
    batches.close()


def test_a_whole_batch_finds_room_in_the_shared_memory():
    maker = batches_of()._maker
    images, labels = maker.make(0)
    assert images.nbytes + labels.nbytes == maker.batch_bytes


def test_a_forked_process_has_workers_of_its_own():
    whole = batches_of()
    epochs = [numbers(whole) for _ in range(3)]
    batches = batches_of(workers=2)
    assert numbers(batches) == epochs[0]
    epoch = iter(batches)
    next(epoch)
    child = os.fork()
    if not child:
        code = 1
        with contextlib.suppress(BaseException):
            with pytest.raises(WorkerError, match="belong to the process that this one was forked from"):
                next(epoch)
            code = 0 if numbers(batches) == epochs[2] else 2
            batches.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(epoch)) == len(batches) - 1  # nobody has taken what is this process'
    assert numbers(batches) == epochs[2]
    batches.close()


def test_a_closed_epoch_blames_no_worker():
    batches = batches_of(workers=2)
    epoch = iter(batches)
    next(epoch)
    batches.close()
    with pytest.raises(WorkerError, match="^The workers were closed"):
        list(epoch)


@pytest.mark.parametrize("workers", [0, 2])
def test_two_epochs_at_once_are_refused(workers):
    batches = batches_of(workers=workers)
    first, second = iter(batches), iter(batches)
    next(first), next(second)
    with pytest.raises(RuntimeError, match="Another epoch was begun before this one had ended"):
        next(first)
    assert len(list(second)) == len(batches) - 1
    batches.close()


def test_a_batch_stays_as_it_is_when_others_are_made():
    batches = batches_of(workers=1)
    served = list(batches)
    assert sorted(numbers(served)) == list(range(IMAGES))
    served[0][0][:] = 255
    assert 255 not in numbers(served[1:])
    batches.close()


def test_a_worker_that_is_killed_is_an_error_that_names_it():
    batches, before = batches_of(batch_size=2, workers=2), children()
    epoch = iter(batches)
    next(epoch)
    for process in children() - before:  # an epoch is more than they are ahead
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"worker \d of 2 \(process \d+\) was killed by signal SIGKILL"):
        list(epoch)
    assert_gone(before)
    assert sorted(numbers(batches)) == list(range(IMAGES))  # the next epoch has new ones
    batches.close()
    assert_gone(before)


def test_a_stop_while_a_batch_is_waited_for_leaves_nothing_to_the_next_epoch(monkeypatch):
    whole = batches_of(workers=0)
    epochs = [numbers(whole) for _ in range(3)]
    batches, before = batches_of(workers=2), children()
    epoch = iter(batches)
    next(epoch)
    real, stops = watched._Process._read, [KeyboardInterrupt()]

    def stopped(*words: Any) -> Any:
        if stops:
            raise stops.pop()
        return real(*words)

    monkeypatch.setattr(watched._Process, "_read", stopped)
    with pytest.raises(KeyboardInterrupt):
        list(epoch)
    assert_gone(before)
    assert [numbers(batches) for _ in range(2)] == epochs[1:]
    batches.close()


def test_workers_leave_when_nobody_has_the_batches_any_more():
    before = children()
    batches = batches_of(workers=2)
    assert len(list(batches)) == len(batches)
    assert len(children() - before) == 2
    del batches
    gc.collect()
    assert_gone(before)


def test_what_the_docs_show_runs(photos):
    text = (PROJECT_ROOT / "docs" / "prepared.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "PythonBatches" in block]
    images, shapes = PythonBatches.__iter__, set()

    class Seen(PythonBatches):
        def __iter__(self) -> Any:
            for batch in images(self):
                shapes.add(tuple((part.shape[1:], str(part.dtype)) for part in batch))
                yield batch

    names = {"open_source": lambda data: from_folder(photos), "PythonBatches": Seen}
    exec(re.sub(r"^from unstall.pipeline import .*$", "from unstall.pipeline import VARIANTS", code, flags=re.M), names)
    assert shapes == {(((64, 64, 3), "uint8"), ((), "int32"))}
