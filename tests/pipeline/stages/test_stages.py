"""The stages of a tf.data pipeline: what they do when nobody asks for more."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import time
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from tests.builders import WITHOUT_SERVICE
from unstall.pipeline.building import build
from unstall.pipeline.config import CHOICES, PipelineConfig
from unstall.pipeline.draws import drawn
from unstall.pipeline.errors import ConfigError
from unstall.pipeline.sources.arrays import from_arrays
from unstall.pipeline.sources.folder import from_folder
from unstall.pipeline.sources.names import GROUP_NAMES, FileNames
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.stages import epochs, order, read, warp
from unstall.pipeline.variants import TF_DATA, VARIANTS
from unstall.profiles.stages.tf_graph import python_in, random_in, upstream


@pytest.fixture
def warped(monkeypatch):
    """Counts the images that OpenCV augments: how far a pipeline has come."""
    seen = []

    class Counting(warp.OpenCVWarp):
        def __call__(self, image, matrix, target):
            seen.append(image)
            super().__call__(image, matrix, target)

    monkeypatch.setitem(warp.WARPS, "opencv", Counting)
    return seen


@pytest.fixture
def source():
    images = np.random.default_rng(0).integers(0, 256, (64, 16, 16, 3), np.uint8)
    return from_arrays(images, np.arange(64) % 2)


def after_one_batch(loader, warped, *, wanted, within_s=30.0):
    """Takes a batch, and waits for tf.data's threads to make `wanted` images."""
    iterator = iter(loader.data)
    next(iterator)
    until = time.monotonic() + within_s
    while len(warped) < wanted and time.monotonic() < until:
        time.sleep(0.01)
    return len(warped)


def test_tf_data_without_its_rewrites_makes_one_batch_and_no_more(warped, source):
    config = replace(VARIANTS["tf-data"], augment_with="opencv", batch_size=4, image_size=(8, 8))
    with build(config, source) as loader:
        assert after_one_batch(loader, warped, wanted=5, within_s=0.5) == 4


def test_prefetch_reads_ahead(warped, source):
    config = replace(VARIANTS["tf-data"], augment_with="opencv", batch_size=4, image_size=(8, 8), prefetch=2)
    with build(config, source) as loader:
        assert after_one_batch(loader, warped, wanted=12) >= 12


def test_rewrites_turn_a_sequential_map_into_one_that_reads_ahead(warped, source):
    config = replace(VARIANTS["tf-data"], augment_with="opencv", batch_size=4, image_size=(8, 8), rewrites=True)
    with build(config, source) as loader:
        assert after_one_batch(loader, warped, wanted=5) > 4


def test_tensorflow_cuts_the_path_of_each_file_out_of_their_names(tmp_path):
    names = ("a/1.jpg", "a/é.jpg", os.fsdecode(b"b/\xff.jpg"), "b/日本.jpg")
    names *= GROUP_NAMES // 2
    files = {"files": FileNames.of(names), "labels": np.zeros(len(names), np.int64), "class_names": ("a", "b")}
    for root in (tmp_path, pathlib.Path("/")):
        source = ImageSource(kind="folder", name="names", root=root, **files)
        path_of = read.paths_of(source)
        paths = tf.data.Dataset.range(len(names)).map(path_of)
        assert list(paths.as_numpy_iterator()) == [os.fsencode(path) for path in source.paths]
        assert source.paths == [str(root / name) for name in names]


def caches(dataset):
    return [one for one in upstream(dataset) if "Cache" in type(one).__name__]


def drawing(dataset):
    """Returns what draws, or may, in a dataset and all that it reads."""
    return [name for one in upstream(dataset) for name in (*random_in(one), *python_in(one))]


def cached_in_memory(**changes):
    """Yields a config with a cache in memory for each way and place to augment, and one that does not augment."""
    for augment_with, augment_at in itertools.product(CHOICES["augment_with"], CHOICES["augment_at"]):
        with contextlib.suppress(ConfigError):
            yield PipelineConfig(cache="memory", augment_with=augment_with, augment_at=augment_at, **changes)
    yield PipelineConfig(cache="memory", augmentation=None, **changes)


@pytest.mark.parametrize("shuffle_buffer", [0, 512])
@pytest.mark.parametrize("storage", CHOICES["storage"])
def test_nothing_that_draws_or_may_comes_before_a_cache(storage, shuffle_buffer, photos):
    """By the order in which `build` calls the stages; `profiles` reads the graph that they make."""
    source = from_folder(photos).take(6)
    configs = list(cached_in_memory(storage=storage, shuffle_buffer=shuffle_buffer, image_size=(8, 8)))
    assert len({(config.augment_with, config.augment_at) for config in configs}) == 7
    for config in configs:
        with build(config, source) as loader:
            [cache] = caches(loader.data)
            assert drawing(cache) == []
            # The reader does see what this config draws in tf.data; it would see it in front of the cache, too.
            assert bool(drawing(loader.data)) is (config.augmentation is not None and config.augment_at != "device")


@pytest.mark.parametrize("name", [name for name in WITHOUT_SERVICE if name in TF_DATA])
def test_nothing_that_draws_or_may_comes_before_a_cache_of_a_variant(name, photos):
    with build(replace(VARIANTS[name], image_size=(8, 8)), from_folder(photos)) as loader:
        found = caches(loader.data)
        assert len(found) == (VARIANTS[name].cache == "memory")
        assert [drawing(cache) for cache in found] == [[]] * len(found)


def test_epoch_draws_are_counted_by_epoch_not_by_iterator(source):
    config = PipelineConfig(image_size=(8, 8), seed=3)
    draws = order.epoch_draws(5, config)
    first, second = (np.stack(list(draws.as_numpy_iterator())) for _ in range(2))
    np.testing.assert_array_equal(first, drawn(config.augmentation, 5, seed=3, epoch=0).affine(8, 8))
    np.testing.assert_array_equal(second, drawn(config.augmentation, 5, seed=3, epoch=1).affine(8, 8))


@pytest.mark.parametrize("images", [1025, 2048, 2500])
def test_a_long_epoch_has_each_image_once_in_another_order_each_time(images, monkeypatch):
    for module in (order, epochs):
        monkeypatch.setattr(module, "LONG_EPOCH", 1000)
    monkeypatch.setattr(order, "PLANNED_AT_ONCE", 512)
    source = from_arrays(np.zeros((images, 1, 1, 3), np.uint8), np.arange(images) % 2)
    config = PipelineConfig(seed=3)
    dataset = order.order(source, config)
    first, second = (list(dataset.as_numpy_iterator()) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(images))
    # Two random orders agree in one place on average.
    assert sum(np.equal(first, second)) < 10 and sum(np.equal(first, np.arange(images))) < 10
    # Neighbours are far apart: a third of the epoch on average.
    assert np.abs(np.diff(first)).mean() == pytest.approx(images / 3, rel=0.1)
    assert list(order.order(source, config).as_numpy_iterator()) == first
    assert list(order.order(source, PipelineConfig(seed=4)).as_numpy_iterator()) != first
    assert dataset.cardinality() == images
    # Repeated, as one iterator over all epochs reads it, each epoch has an order of its own as well.
    both = list(order.order(source, config).repeat(2).as_numpy_iterator())
    assert sorted(both[:images]) == sorted(both[images:]) and both[:images] != both[images:]


@pytest.mark.parametrize("long_epoch", [10, 100])
@pytest.mark.parametrize("at_once", [1, 7, 12, 25, 100])
def test_draws_that_are_made_in_parts_are_those_of_the_whole_epoch(at_once, long_epoch, monkeypatch):
    monkeypatch.setattr(order, "PLANNED_AT_ONCE", at_once)
    monkeypatch.setattr(epochs, "LONG_EPOCH", long_epoch)
    config = PipelineConfig(image_size=(8, 8), batch_size=6, seed=3)
    source = from_arrays(np.zeros((25, 8, 8, 3), np.uint8), np.arange(25) % 2)
    draws, planned = order.epoch_draws(25, config), order.planned_batches(source, config)
    for epoch in range(2):
        whole = drawn(config.augmentation, 25, seed=3, epoch=epoch).affine(8, 8)
        np.testing.assert_array_equal(list(draws.as_numpy_iterator()), whole)
        indices, matrices = map(np.concatenate, zip(*planned.as_numpy_iterator(), strict=True))
        np.testing.assert_array_equal(matrices, whole)
        np.testing.assert_array_equal(indices, epochs.order_of(source, config, epoch)(np.arange(25)))
