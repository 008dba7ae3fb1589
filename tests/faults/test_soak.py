"""Many epochs: memory, descriptors, threads and processes stay as they are."""

import contextlib
import dataclasses
import gc
import itertools
import os
import threading

import keras
import numpy as np
import psutil
import pytest
from PIL import Image

from tests.builders import WITHOUT_SERVICE
from tests.planted import repeated
from unstall.pipeline import VARIANTS, build, from_folder
from unstall.pipeline.loaders.python_batches import PythonBatches

IMAGES = 48
# Glibc's arenas, one a thread, settle within the first epochs; what leaks in an epoch goes on.
SETTLED_RATIO = 0.4
# TensorFlow starts the threads of a pool as it needs them: so many may come late, all at once.
LATE_THREADS = 8
# Of an epoch: 48 images of 16x16 in float32 are 150 kB, so that a leak of one batch in three would be seen.
LEAST_LEAK_BYTES = 50_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("soak")
    random = np.random.default_rng(0)
    for index in range(IMAGES):
        path = root / "ab"[index % 2] / f"{index:02d}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (24, 24, 3), np.uint8)).save(path)
    return root


class Watch(keras.callbacks.Callback):
    """What this process holds at the end of each epoch."""

    def __init__(self):
        super().__init__()
        self.memory_bytes, self.descriptors, self.threads, self.children = [], [], [], []

    def on_epoch_end(self, epoch, logs=None):
        gc.collect()
        process = psutil.Process()
        self.memory_bytes.append(process.memory_info().rss)
        self.descriptors.append(len(os.listdir("/proc/self/fd")))
        self.threads.append((threading.active_count(), process.num_threads()))
        self.children.append(len(process.children(recursive=True)))


def soaked(name, folder, epochs):
    config = dataclasses.replace(VARIANTS[name], image_size=(16, 16), batch_size=8)
    watch = Watch()
    model = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(loss="mse")
    with build(config, from_folder(folder)) as loader:
        model.train_function = lambda iterator: next(iterator) and {}
        model.fit(loader.data, epochs=epochs, verbose=0, callbacks=[watch])
    return watch


def soaked_without_tf_data(workers, folder, epochs):
    config = dataclasses.replace(VARIANTS["tf-data-composed"], image_size=(16, 16), batch_size=8)
    watch = Watch()
    with contextlib.closing(PythonBatches(from_folder(folder), config, workers=workers)) as batches:
        for epoch in range(epochs):
            assert sum(len(labels) for _, labels in batches) == IMAGES
            watch.on_epoch_end(epoch)
    return watch


def leaks(threads, settled):
    """Whether threads leak: their most grows by many, or again and again. A pool may start a few late, once."""
    most = list(itertools.accumulate(threads, max))[settled:]
    rises = sum(later > earlier for earlier, later in itertools.pairwise(most))
    return most[-1] > most[0] + (2 if rises > 1 else LATE_THREADS)


def assert_flat(watch):
    settled = int(len(watch.children) * SETTLED_RATIO)
    assert max(watch.descriptors[settled:]) <= max(watch.descriptors[: settled + 1]) + 2
    for number in range(2):
        assert not leaks([threads[number] for threads in watch.threads], settled)
    assert max(watch.children[settled:]) <= max(watch.children[: settled + 1])


def assert_flat_in_memory_too(watch):
    assert_flat(watch)
    settled = int(len(watch.memory_bytes) * SETTLED_RATIO)
    later = np.array(watch.memory_bytes[settled:], np.float64)
    grown_bytes = np.polyfit(np.arange(len(later)), later, 1)[0]
    assert grown_bytes < LEAST_LEAK_BYTES


@repeated  # threads of a pool that start late are no leak, and are there when it runs again
@pytest.mark.parametrize(
    "name", ["py-dataset", pytest.param("py-dataset-processes", marks=pytest.mark.slow), "tf-data-autotune"]
)
def test_ten_epochs_hold_no_more_than_the_first(name, folder):
    assert_flat(soaked(name, folder, 10))


@repeated
@pytest.mark.parametrize("workers", [0, 2])
def test_ten_epochs_without_tf_data_hold_no_more_than_the_first(workers, folder):
    watch = soaked_without_tf_data(workers, folder, 10)
    assert_flat(watch)
    assert watch.children[-1] >= workers


@pytest.mark.slow  # 200 epochs of every variant
@pytest.mark.parametrize("name", WITHOUT_SERVICE)
def test_two_hundred_epochs_hold_no_more_than_the_first(name, folder):
    assert_flat_in_memory_too(soaked(name, folder, 200))


@pytest.mark.slow  # 200 epochs
@pytest.mark.parametrize("workers", [0, 2])
def test_two_hundred_epochs_without_tf_data_hold_no_more_than_the_first(workers, folder):
    assert_flat_in_memory_too(soaked_without_tf_data(workers, folder, 200))


@pytest.mark.parametrize("what", ["descriptors", "threads"])
def test_the_check_sees_what_stays(what):
    held, event = [], threading.Event()

    class Leaking(Watch):
        def on_epoch_end(self, epoch, logs=None):
            if what == "descriptors":
                held.append(os.open(os.devnull, os.O_RDONLY))
            else:
                threading.Thread(target=event.wait, daemon=True).start()
            super().on_epoch_end(epoch, logs)

    watch = Leaking()
    for epoch in range(10):
        watch.on_epoch_end(epoch)
    with pytest.raises(AssertionError):
        assert_flat(watch)
    event.set()
    for descriptor in held:
        os.close(descriptor)


def test_threads_that_start_late_at_once_are_no_leak():
    assert not leaks([90, 112, 112, 112, 112, 112, 115, 115, 115, 115], 4)
    assert leaks([90, 112, 112, 112, 112, 112, 114, 114, 116, 116], 4)
    assert leaks([90, 112, 112, 112, 112, 112, 112, 112, 130, 130], 4)
