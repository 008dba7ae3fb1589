"""Every image exactly once an epoch, whatever the sizes and the workers; and draws that no two workers share."""

import contextlib
import dataclasses
import itertools
import math

import numpy as np
import pytest
from PIL import Image

from tests.builders import WITHOUT_SERVICE, fed, unit, whole
from unstall.pipeline import VARIANTS, build, from_arrays, from_folder
from unstall.pipeline.config import AUTO
from unstall.pipeline.loaders.python_batches import PythonBatches

SIZES, BATCHES, WORKERS = (1, 7, 64, 1_000, 10_007), (1, 7, 32), (0, 1, 2, 3, 4)
# Of these, one number of workers has to do: they take minutes.
MANY_BATCHES = 2_000
SIDE = 8
# Loaders that need a folder of files.
NEED_FILES = ("image_data_generator", "image_dataset_from_directory")


def numbered(images):
    """(images, 8, 8, 3) uint8: each of one colour, its number in two digits of base 101; no draw changes that."""
    digits = np.stack([np.arange(images) % 101, np.arange(images) // 101, np.zeros(images)], -1) * 2
    return np.broadcast_to(digits[:, np.newaxis, np.newaxis], (images, SIDE, SIDE, 3)).astype(np.uint8)


def numbers_of(images):
    """The numbers of images that were served."""
    digits = np.rint(255 * unit(images)[:, SIDE // 2, SIDE // 2, :2] / 2).astype(int)
    return digits[:, 0] + 101 * digits[:, 1]


def source_of(images, config, folder):
    labels = np.arange(images) % 2
    if config.loader not in NEED_FILES and config.storage not in ("records", "resized") and config.location != "ram":
        return from_arrays(numbered(images), labels, class_names=("a", "b"))
    root = folder / str(images)
    if not root.exists():
        for name in "ab":
            (root / name).mkdir(parents=True)
        for index, pixels in enumerate(numbered(images)):
            Image.fromarray(pixels).save(root / "ab"[index % 2] / f"{index:05d}.png", compress_level=1)
    return from_folder(root)


def config_of(name, batch_size, workers):
    """A variant as it is, but for its sizes; 0 workers are its own number, and what is tuned stays tuned."""
    config = dataclasses.replace(VARIANTS[name], batch_size=batch_size, image_size=(SIDE, SIDE))
    return dataclasses.replace(config, workers=workers) if workers and config.workers != AUTO else config


def assert_exactly_once(name, images, batch_size, workers, folder):
    config = config_of(name, batch_size, workers)
    source = source_of(images, config, folder)
    with build(config, source) as loader:
        assert (loader.images, loader.batches) == (images, math.ceil(images / batch_size))
        assert_epochs_are_whole(fed(loader.data, 2), images, batch_size)


def assert_exactly_once_without_tf_data(images, batch_size, workers):
    config = dataclasses.replace(VARIANTS["tf-data-composed"], batch_size=batch_size, image_size=(SIDE, SIDE))
    source = from_arrays(numbered(images), np.arange(images) % 2, class_names=("a", "b"))
    with contextlib.closing(PythonBatches(source, config, workers=workers)) as batches:
        assert len(batches) == math.ceil(images / batch_size)
        assert_epochs_are_whole([list(batches) for _ in range(2)], images, batch_size)


def assert_epochs_are_whole(epochs, images, batch_size):
    for batches in epochs:
        sizes = [len(labels) for _, labels in batches]
        assert sizes == [batch_size] * (images // batch_size) + [images % batch_size] * (images % batch_size > 0)
        served, labels = whole(batches)
        numbers = numbers_of(served)
        np.testing.assert_array_equal(np.sort(numbers), np.arange(images))
        np.testing.assert_array_equal(labels, numbers % 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("numbered")


# Each size up to 1,000, batch size and number of workers with each other once or more, over both kinds of our loaders.
SMOKE = [
    ("py-dataset", 1, 1, 4),
    ("py-dataset", 7, 32, 2),
    ("py-dataset", 64, 7, 3),
    ("py-dataset-processes", 1, 7, 2),
    ("py-dataset-processes", 7, 1, 4),
    ("py-dataset-processes", 64, 32, 1),
    ("py-dataset-processes", 1_000, 32, 3),
    ("tf-data-parallel", 1, 32, 3),
    ("tf-data-parallel", 7, 7, 4),
    ("tf-data-parallel", 1_000, 7, 2),
    ("tf-data-parallel", 1_000, 32, 4),
    ("tf-data-autotune", 64, 1, 0),
    ("tf-data-cache", 7, 1, 0),
    ("tf-data-raw", 64, 7, 0),
    ("tf-data-raw", 1_000, 7, 3),
]


@pytest.mark.parametrize(("name", "images", "batch_size", "workers"), SMOKE)
def test_every_image_comes_exactly_once(name, images, batch_size, workers, folder):
    assert_exactly_once(name, images, batch_size, workers, folder)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_image_comes_exactly_once_without_tf_data(workers):
    assert_exactly_once_without_tf_data(64, 7, workers)


@pytest.mark.claims  # 75 combinations
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("batch_size", BATCHES)
@pytest.mark.parametrize("images", SIZES)
def test_every_image_comes_exactly_once_without_tf_data_for_every_size(images, batch_size, workers):
    assert_exactly_once_without_tf_data(images, batch_size, workers)


# The whole grid takes half an hour.
@pytest.mark.parametrize(
    "images",
    [pytest.param(images, marks=pytest.mark.claims if images in (7, 64) else pytest.mark.slow) for images in SIZES],
)
@pytest.mark.parametrize("name", WITHOUT_SERVICE)
def test_every_image_comes_exactly_once_from_every_variant(name, images, folder):
    if images == 1 and VARIANTS[name].loader in NEED_FILES:
        pytest.skip("a folder of two classes has two images at least")
    if VARIANTS[name].storage == "records" or VARIANTS[name].location == "ram":
        images = max(images, 2)
    some = (0,) if VARIANTS[name].workers == AUTO else WORKERS
    for batch_size, workers in itertools.product(BATCHES, some):
        if images // batch_size < MANY_BATCHES:
            assert_exactly_once(name, images, batch_size, workers, folder)


@pytest.mark.slow  # 20,014 batches a variant
@pytest.mark.parametrize("name", WITHOUT_SERVICE)
def test_ten_thousand_batches_of_one_image_have_every_image_once(name, folder):
    workers = 0 if VARIANTS[name].workers == AUTO else max(WORKERS)
    assert_exactly_once(name, max(SIZES), min(BATCHES), workers, folder)


# Draws


def repeated_draws(epochs):
    """How many images of epochs over one image, again and again, are the same as another: drawn alike."""
    images = np.concatenate([whole(batches)[0] for batches in epochs])
    return len(images) - len(np.unique(images.reshape(len(images), -1), axis=0))


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    """The same picture 48 times."""
    root = tmp_path_factory.mktemp("alike")
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    for index in range(48):
        path = root / "ab"[index % 2] / f"{index:02d}.png"
        path.parent.mkdir(exist_ok=True)
        picture.save(path)
    return root


def draws(name, alike):
    config = dataclasses.replace(VARIANTS[name], batch_size=4)
    with build(config, from_folder(alike)) as loader:
        return repeated_draws(fed(loader.data, 2))


@pytest.mark.parametrize("name", ["py-dataset", "py-dataset-processes", "tf-data-parallel", "tf-data-composed"])
def test_our_workers_never_draw_alike(name, alike):
    assert draws(name, alike) == 0


def test_the_check_fires_on_stock_keras_with_forked_workers(alike):
    assert draws("generator-processes", alike) > 0


# Corners


@pytest.mark.parametrize("name", ["py-dataset", "py-dataset-processes", "tf-data-parallel", "generator", "directory"])
def test_a_batch_larger_than_the_data_is_the_data(name, folder):
    assert_exactly_once(name, 7, 1_000, 0, folder)


@pytest.mark.parametrize("name", ["tf-data-parallel", "generator", "directory"])
def test_a_last_batch_of_one_is_served(name, folder):
    assert_exactly_once(name, 64, 7, 0, folder)
    assert 64 % 7 == 1
