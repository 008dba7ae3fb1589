"""Our PyDataset: the same batches for any workers, and a true count of who made them."""

import dataclasses
import io
import multiprocessing
import threading

import numpy as np
import pytest
from PIL import Image

from tests.builders import fed
from unstall.pipeline import VARIANTS, build, from_arrays, from_folder
from unstall.pipeline.draws import epoch_order
from unstall.pipeline.loaders.py_dataset import ImagePyDataset, WorkerRecord

CONFIG = dataclasses.replace(VARIANTS["py-dataset"], batch_size=16)


def by_hand(data, epochs: int = 1) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    seen = []
    for _ in range(epochs):
        seen.append([data[index] for index in range(data.num_batches)])
        data.on_epoch_end()
    return seen


def assert_same(ours, theirs) -> None:
    assert [len(batches) for batches in ours] == [len(batches) for batches in theirs]
    for batches, others in zip(ours, theirs, strict=True):
        for (images, labels), (other_images, other_labels) in zip(batches, others, strict=True):
            np.testing.assert_array_equal(images, other_images)
            np.testing.assert_array_equal(labels, other_labels)


@pytest.fixture(scope="module")
def expected(photos):
    """Four epochs, made one batch after the other."""
    return by_hand(ImagePyDataset(from_folder(photos), CONFIG), 4)


@pytest.mark.parametrize(
    ("workers", "processes"),
    [
        (1, False),
        (4, False),
        (4, True),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((2, False), (1, True))),
    ],
    ids=str,
)
def test_fit_gets_the_same_batches_from_any_workers(photos, expected, workers, processes):
    config = dataclasses.replace(CONFIG, workers=workers, use_multiprocessing=processes)
    with build(config, from_folder(photos)) as loader:
        # `fit` ends an epoch before its first.
        assert_same(fed(loader.data, 3), expected[1:])


@pytest.mark.parametrize("queue", [1, pytest.param(2, marks=pytest.mark.slow), 64])
def test_the_length_of_the_queue_does_not_change_the_batches(photos, expected, queue):
    data = ImagePyDataset(from_folder(photos), dataclasses.replace(CONFIG, max_queue_size=queue))
    assert (data.workers, data.worker_processes, data.max_queue_size) == (4, False, queue)
    assert_same(fed(data, 3), expected[1:])


def test_workers_and_queue_reach_keras_and_processes_are_our_own(photos):
    config = dataclasses.replace(CONFIG, workers=3, use_multiprocessing=True, max_queue_size=7)
    data = ImagePyDataset(from_folder(photos), config)
    assert (data.workers, data.use_multiprocessing, data.max_queue_size) == (3, False, 7)
    assert data.worker_processes


def test_the_last_batch_is_short(expected):
    assert [len(images) for images, _ in expected[0]] == [16, 16, 8]
    assert {(images.dtype.name, labels.dtype.name) for images, labels in expected[0]} == {("float32", "int32")}


def test_epochs_differ_and_follow_the_order_of_their_number(photos, expected):
    source = from_folder(photos)
    labels = [np.concatenate([labels for _, labels in batches]) for batches in expected]
    for epoch in range(3):
        order = epoch_order(40, seed=CONFIG.seed, epoch=epoch)
        np.testing.assert_array_equal(labels[epoch], source.labels[order])
    assert not np.array_equal(expected[0][0][0], expected[1][0][0])


def test_a_batch_may_be_asked_for_twice(photos, expected):
    data = ImagePyDataset(from_folder(photos), CONFIG)
    data[2]
    assert_same([[data[0], data[0]]], [[expected[0][0]] * 2])


def test_two_images_alike_are_never_drawn_alike():
    images = np.tile(np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3), np.uint8), (40, 1, 1, 1))
    data = ImagePyDataset(from_arrays(images, np.arange(40) % 2), CONFIG)
    with_draws = np.concatenate([images for epoch in fed(data, 2) for images, _ in epoch])
    assert len(np.unique(with_draws.reshape(80, -1), axis=0)) == 80


def test_arrays_of_the_right_size_are_served_unchanged():
    images = np.random.default_rng(0).integers(0, 256, (6, 64, 64, 3), np.uint8)
    config = dataclasses.replace(CONFIG, augmentation=None, shuffle_buffer=0)
    [[(served, labels)]] = by_hand(ImagePyDataset(from_arrays(images, np.array([0, 1, 2, 0, 1, 2])), config))
    np.testing.assert_allclose(served * 255, images, atol=1e-4)
    assert labels.tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("workers", [1, 4])
def test_a_file_that_cannot_be_decoded_is_named_without_its_folder(tmp_path, workers):
    stream = io.BytesIO()
    Image.effect_noise((90, 70), 50).convert("RGB").save(stream, "GIF")
    for name in "ab":
        (tmp_path / name).mkdir()
        # The header is whole, so that the scan keeps it.
        (tmp_path / name / "1").write_bytes(stream.getvalue()[: len(stream.getvalue()) // 2])
    data = ImagePyDataset(from_folder(tmp_path), dataclasses.replace(CONFIG, workers=workers, batch_size=1))
    with pytest.raises(ValueError, match=r"(^|[: ])[ab]/1 cannot be decoded by OpenCV\."):
        fed(data)


def test_a_file_that_was_emptied_since_the_scan_is_named(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("RGB", (90, 70)).save(tmp_path / name / "1.jpg")
    data = ImagePyDataset(from_folder(tmp_path), dataclasses.replace(CONFIG, batch_size=1))
    for name in "ab":
        (tmp_path / name / "1.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match=r"^[ab]/1\.jpg cannot be decoded by OpenCV\.$"):
        data[0]


# WorkerRecord


def serve_together(record: WorkerRecord, barrier) -> None:
    with record.serving():
        barrier.wait(timeout=60)


def run_threads(record: WorkerRecord, number: int) -> None:
    barrier = threading.Barrier(number)
    threads = [threading.Thread(target=serve_together, args=(record, barrier)) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_record_starts_with_no_worker():
    assert WorkerRecord().workers == 0


def test_threads_that_take_turns_are_one_worker():
    record = WorkerRecord()
    for _ in range(5):
        run_threads(record, 1)
    assert record.workers == 1


def test_four_threads_busy_at_once_are_four_workers():
    record = WorkerRecord()
    run_threads(record, 4)
    run_threads(record, 2)
    assert record.workers == 4


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no forked processes here")
def test_three_forked_processes_busy_at_once_are_three_workers():
    record = WorkerRecord()
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(3)
    children = [fork.Process(target=serve_together, args=(record, barrier)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert record.workers == 3


def test_a_record_that_was_cleared_starts_again():
    record = WorkerRecord()
    run_threads(record, 4)
    record.clear()
    assert record.workers == 0
    run_threads(record, 2)
    assert record.workers == 2


def test_a_worker_that_fails_is_no_longer_busy():
    record = WorkerRecord()
    with pytest.raises(RuntimeError, match="stop"), record.serving():
        raise RuntimeError("stop")
    run_threads(record, 2)
    assert record.workers == 2


def test_a_record_of_many_epochs_still_counts():
    record = WorkerRecord()
    for _ in range(300):  # each epoch's pool has new threads
        run_threads(record, 1)
    assert record.workers == 1
    run_threads(record, 4)
    assert record.workers == 4


class Together(ImagePyDataset):
    """Makes a batch only when all workers are at one; Keras draws two in advance in the main thread."""

    barrier = None

    def _batch(self, index, empty):
        worker = threading.current_thread() is not threading.main_thread() or multiprocessing.parent_process()
        if worker:
            self.barrier.wait(timeout=60)
        return super()._batch(index, empty)


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_four_workers_of_fit_are_busy_at_once(photos, processes):
    config = dataclasses.replace(CONFIG, workers=4, batch_size=5, use_multiprocessing=processes)
    data = Together(from_folder(photos), config)
    data.barrier = multiprocessing.get_context("fork").Barrier(4) if processes else threading.Barrier(4)
    fed(data)
    assert data.record.workers == 4
