"""Classes of exactness, with exact numbers."""

import math

import numpy as np
import pytest

from unstall.benchmarks.tune.exactness import Exactness, allowed, compare

BLACK = np.zeros((4, 8, 8, 3), np.uint8)


def test_the_same_images_are_identical_in_either_type():
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8)
    assert compare(images, images) == Exactness(mean_levels=0.0, largest_levels=0.0, psnr_db=None)
    assert compare(images, images).name == "identical"
    assert compare(images.astype(np.float32) / 255, images).largest_levels < 1e-4


def test_one_level_in_one_pixel_is_not_identical():
    other = BLACK.copy()
    other[0, 0, 0, 0] = 1
    found = compare(other, BLACK)
    assert (found.name, found.largest_levels, found.mean_levels) == ("close", 1.0, 1 / BLACK.size)
    assert found.psnr_db == pytest.approx(10 * math.log10(255**2 * BLACK.size))


@pytest.mark.parametrize(("levels", "name"), [(8, "close"), (9, "distribution")])
def test_the_mean_bounds_what_is_close(levels, name):
    assert compare(BLACK + np.uint8(levels), BLACK).name == name


def test_a_few_pixels_far_off_are_not_close():
    other = BLACK.copy()
    other[:, 0, 0] = 255  # 4 levels on average, 18 dB
    assert compare(other, BLACK).name == "distribution"


@pytest.mark.parametrize("shape", [(3, 8, 8, 3), (4, 8, 9, 3)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="Only images of the same number and shape can be compared"):
        compare(np.zeros(shape, np.uint8), BLACK)


def test_nothing_is_not_identical_to_nothing():
    with pytest.raises(ValueError, match="can be compared"):
        compare(BLACK[:0], BLACK[:0])


def test_a_class_allows_what_is_narrower():
    assert [allowed(name, "close") for name in ("identical", "close", "distribution")] == [True, True, False]
