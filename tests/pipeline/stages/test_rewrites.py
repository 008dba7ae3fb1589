"""Every rewrite of a pipeline against what it stands for: the same photos and draws, and its class of exactness."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest

from unstall.benchmarks.tune.child import compared_images
from unstall.benchmarks.tune.exactness import CLOSE_MEAN_LEVELS, compare
from unstall.pipeline import PipelineConfig, open_source

# Full decode, bilinear, one image after the other.
BASE = PipelineConfig(seed=3)

IDENTICAL = {
    "parallel calls": {"workers": 2},
    "AUTOTUNE": {"workers": "auto", "prefetch": "auto"},
    "frozen": {"workers": 2, "prefetch": 2, "autotune": False, "rewrites": False},
    "cache in memory": {"cache": "memory"},
    "cache on disk": {"cache": "disk"},
    "records": {"storage": "records"},
    "files on a RAM disk": {"location": "ram"},
    "augmentation by batch": {"augment_at": "batch"},
    "order free": {"workers": 1, "deterministic": False},
}
# What is changed; at most so many levels of 255 off on average and in one pixel, and at least so many dB.
CLOSE = {
    "albumentations": ({"augment_with": "albumentations"}, 0.001, 0.1, 100.0),
    "OpenCV": ({"augment_with": "opencv"}, 0.001, 0.1, 100.0),
    "OpenCV by batch": ({"augment_with": "opencv", "augment_at": "batch"}, 0.001, 0.1, 100.0),
    "scaled decode": ({"decode": "scaled"}, 6.0, 180.0, 28.0),
    "composed": (
        {"decode": "scaled", "resample": "composed", "augment_with": "opencv", "augment_at": "batch"},
        *(7.5, 230.0, 26.0),
    ),
    "raw": ({"storage": "raw"}, 0.25, 0.51, 60.0),
    "raw, composed": (
        {"storage": "raw", "resample": "composed", "augment_with": "opencv", "augment_at": "batch"},
        *(0.5, 1.5, 54.0),
    ),
    "resized": ({"storage": "resized"}, 3.0, 32.0, 36.5),
}
if cv2.__version__.startswith("4."):
    # Its warp takes coordinates in steps of 1/32 pixel.
    CLOSE |= {name: (CLOSE[name][0], 0.25, 4.0, 57.0) for name in ("albumentations", "OpenCV", "OpenCV by batch")}
    CLOSE["raw, composed"] = (CLOSE["raw, composed"][0], 0.5, 4.0, 54.0)


@pytest.fixture(scope="module")
def source(photos):
    return open_source(str(photos))


@pytest.fixture(scope="module")
def expected(source):
    return compared_images(BASE, source)


@pytest.mark.parametrize("changes", IDENTICAL.values(), ids=list(IDENTICAL))
def test_a_rewrite_that_changes_no_work_changes_no_bit(source, expected, changes):
    images = compared_images(replace(BASE, **changes), source)
    assert np.array_equal(images, expected)
    assert compare(images, expected).name == "identical"


@pytest.mark.parametrize(("changes", "mean_levels", "largest_levels", "psnr_db"), CLOSE.values(), ids=list(CLOSE))
def test_a_rewrite_that_resamples_otherwise_is_close(source, expected, changes, mean_levels, largest_levels, psnr_db):
    found = compare(compared_images(replace(BASE, **changes), source), expected)
    assert found.name == "close"
    assert found.mean_levels <= mean_levels and found.largest_levels <= largest_levels and found.psnr_db >= psnr_db


def test_another_draw_is_of_the_widest_class(source, expected):
    other = compare(compared_images(replace(BASE, seed=4), source), expected)
    assert other.name == "distribution"
    assert other.mean_levels > 2 * CLOSE_MEAN_LEVELS
