"""The stages of a tf.data pipeline: what they do when nobody asks for more."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from pipeline import stages, warp
from pipeline.config import PipelineConfig
from pipeline.loaders import build
from pipeline.sources import from_arrays
from pipeline.variants import VARIANTS


@pytest.fixture
def warped(monkeypatch):
    """Counts the images that OpenCV augments: how far a pipeline has come."""
    seen = []

    class Counting(warp.OpenCVWarp):
        def __call__(self, image, matrix):
            seen.append(image)
            return super().__call__(image, matrix)

    monkeypatch.setitem(warp.WARPS, "opencv", Counting)
    return seen


@pytest.fixture
def source():
    images = np.random.default_rng(0).integers(0, 256, (64, 16, 16, 3), np.uint8)
    return from_arrays(images, np.arange(64) % 2)


def after_one_batch(loader, warped):
    iterator = iter(loader.data)
    next(iterator)
    # Long enough for anything that reads ahead to show; what does not read ahead is the same after any time.
    time.sleep(0.5)
    return len(warped)


def test_tf_data_without_its_rewrites_makes_one_batch_and_no_more(warped, source):
    config = replace(VARIANTS["tf-data"], augment_with="opencv", batch_size=4, image_size=(8, 8))
    with build(config, source) as loader:
        assert after_one_batch(loader, warped) == 4


def test_prefetch_reads_ahead(warped, source):
    config = replace(VARIANTS["tf-data"], augment_with="opencv", batch_size=4, image_size=(8, 8), prefetch=2)
    with build(config, source) as loader:
        assert after_one_batch(loader, warped) >= 12


def test_rewrites_turn_a_sequential_map_into_one_that_reads_ahead(warped, source):
    config = replace(VARIANTS["tf-data"], augment_with="opencv", batch_size=4, image_size=(8, 8), rewrites=True)
    with build(config, source) as loader:
        assert after_one_batch(loader, warped) > 4


def test_nothing_random_comes_before_a_cache(source):
    """Walks the graph as tf.data holds it: a random stage upstream of a cache would freeze its draws."""
    config = replace(VARIANTS["tf-data-cache"], image_size=(8, 8))
    with build(config, source) as loader:
        dataset = loader.data
        names = []
        stack = [dataset]
        while stack:
            one = stack.pop()
            names.append(type(one).__name__)
            if "Cache" in names[-1]:
                upstream = [type(below).__name__ for below in _all_below(one)]
                assert not [name for name in upstream if "Shuffle" in name or "Zip" in name]
                break
            stack.extend(one._inputs())
        assert any("Cache" in name for name in names)


def _all_below(dataset):
    for below in dataset._inputs():
        yield below
        yield from _all_below(below)


def test_epoch_draws_are_counted_by_epoch_not_by_iterator(source):
    config = PipelineConfig(image_size=(8, 8), seed=3)
    draws = stages.epoch_draws(5, config)
    first, second = (np.stack(list(draws.as_numpy_iterator())) for _ in range(2))
    np.testing.assert_array_equal(first, config.augmentation.draw(5, seed=3, epoch=0).affine(8, 8))
    np.testing.assert_array_equal(second, config.augmentation.draw(5, seed=3, epoch=1).affine(8, 8))
