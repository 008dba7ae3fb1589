"""What a batch holds, by its shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from unstall.profiles.unit import IMAGE, SAMPLE, Unit, common_unit, unit_of


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.uint8)


@pytest.mark.parametrize(
    ("inputs", "axis", "unit"),
    [
        (zeros(8, 5, 5, 3), -1, IMAGE),
        (zeros(8, 5, 5, 1), -1, IMAGE),
        (zeros(8, 5, 5, 4), -1, IMAGE),
        (zeros(8, 3, 5, 5), 1, IMAGE),
        (zeros(8, 3, 5, 5), -1, SAMPLE),
        (zeros(8, 5, 5, 2), -1, SAMPLE),
        (zeros(8, 5, 5), -1, SAMPLE),
        (zeros(8, 9, 5, 5, 3), -1, SAMPLE),
        (zeros(8), -1, SAMPLE),
        ({"photo": zeros(8, 5, 5, 3), "age": zeros(8)}, -1, IMAGE),
        ((zeros(8, 12), [zeros(8, 7), zeros(8, 2)]), -1, SAMPLE),
        (tf.TensorSpec((None, None, None, 3)), -1, IMAGE),
        (tf.TensorSpec((None, 80)), -1, SAMPLE),
        (tf.TensorSpec(None), -1, SAMPLE),
        (None, -1, SAMPLE),
    ],
)
def test_images_have_four_axes_and_one_three_or_four_channels(inputs: Any, axis: int, unit: Unit) -> None:
    assert unit_of(inputs, channels_axis=axis) == unit


def test_what_is_made_of_several_files_is_a_sample() -> None:
    pair = IMAGE.of_files(2)
    assert (pair.noun, pair.with_files, f"{pair.article} {pair.noun}") == ("sample", "sample (2 files)", "a sample")
    assert IMAGE.of_files(1) == IMAGE
    assert (IMAGE.with_files, IMAGE.rate, SAMPLE.rate) == ("image", "img/s", "samples/s")


@pytest.mark.parametrize("fields", [{"files": 0}, {"files": 2}, {"noun": "sample", "files": -1}])
def test_a_unit_of_no_file_and_an_image_of_several_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least one file, and an image of one. Received: noun="):
        Unit(**fields)


def test_a_table_of_images_and_other_samples_is_one_of_samples() -> None:
    assert common_unit([IMAGE, IMAGE]) == IMAGE
    assert common_unit([IMAGE, SAMPLE.of_files(2)]) == SAMPLE
    assert common_unit([SAMPLE.of_files(2)] * 2) == SAMPLE.of_files(2)
