"""What two readings of data differ by: nothing, the order, rounding, or more."""

from __future__ import annotations

from collections import UserDict

import numpy as np
import pytest

from unstall.profiles.remedies.equality import BatchComparison, Broken, Readings, compare

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.random((6, 4, 4, 3)).astype(np.float32)
LABELS = np.arange(6)


def batches(images=IMAGES, labels=LABELS, size=2):
    return [(images[at : at + size], labels[at : at + size]) for at in range(0, len(images), size)]


def test_equal_batches_are_identical():
    assert compare(batches(), batches()) == BatchComparison(effect="identical")
    nan = np.full_like(IMAGES, np.nan)
    assert compare(batches(nan), batches(nan)).effect == "identical"


def test_the_same_samples_in_other_batches_are_in_another_order():
    order = [3, 1, 5, 0, 2, 4]
    assert compare(batches(), batches(IMAGES[order], LABELS[order])).effect == "other order"


def test_images_that_swap_their_labels_are_other_samples():
    assert compare(batches(), batches(IMAGES, LABELS[::-1])).effect == "other draws"


def test_rounding_is_close_and_its_largest_difference_is_told():
    found = compare(batches(), batches(IMAGES + np.float32(0.001)))
    assert (found.effect, found.difference) == ("close", pytest.approx(0.001, rel=1e-3))


def test_values_that_differ_by_more_are_other_draws():
    assert compare(batches(), batches(IMAGES[:, ::-1])).effect == "other draws"


def test_whole_numbers_are_never_close():
    assert compare(batches(labels=LABELS), batches(labels=LABELS + 1)).effect == "other draws"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (batches()[:2], "it gives 2 batches in the place of 3"),
        (batches(size=3), "it gives 2 batches in the place of 3"),
        (batches(IMAGES[:, :2]), "its batch 1 has other shapes or types"),
        (batches(IMAGES.astype(np.float64)), "its batch 1 has other shapes or types"),
    ],
)
def test_other_numbers_shapes_and_types_are_thrown_out(changed, message):
    with pytest.raises(Broken, match=message):
        compare(batches(), changed)


def test_batches_may_be_dictionaries_texts_and_lack_labels():
    ours = [({"b": np.array([b"x", b"yy"], object), "a": np.zeros((2, 1))}, None)]
    others = [({"a": np.zeros((2, 1)), "b": np.array([b"x", b"yz"], object)}, None)]
    assert compare(ours, ours).effect == "identical"
    assert compare(ours, others).effect == "other draws"


@pytest.mark.parametrize(
    ("again", "changed", "expected", "noted"),
    [
        (IMAGES, IMAGES[:, ::-1], "other draws", False),
        (IMAGES[::-1], IMAGES[[3, 1, 5, 0, 2, 4]], "identical", False),
        (IMAGES[::-1], IMAGES[:, ::-1], "other draws", False),
        (IMAGES[:, ::-1], IMAGES[:, :, ::-1], "identical", True),
        (IMAGES[:, ::-1], IMAGES[::-1], "identical", True),
        (IMAGES + np.float32(0.001), IMAGES[:, ::-1], "identical", True),
    ],
)
def test_what_two_readings_differ_by_anyway_is_no_effect(again, changed, expected, noted):
    read = iter([IMAGES, again, changed])
    readings = Readings()
    assert readings.compared(("a",), lambda names: batches(next(read), np.zeros(6))).effect == expected
    assert bool(readings.notes) is noted


def test_labels_a_million_times_as_large_make_no_images_close():
    prices = np.full(6, 5e5, np.float32)
    assert compare(batches(labels=prices), batches(IMAGES[:, ::-1], prices)).effect == "other draws"
    assert compare(batches(labels=prices), batches(IMAGES + np.float32(0.001), prices)).effect == "close"


def test_a_value_that_is_no_number_in_one_alone_is_never_close():
    broken = IMAGES.copy()
    broken[0, 0, 0, 0] = np.nan
    assert compare(batches(), batches(broken)).effect == "other draws"
    both = broken + np.float32(0.001)
    assert compare(batches(broken), batches(both)).effect == "close"


def test_batches_may_be_any_mappings():
    given = [UserDict({"images": images, "labels": labels}) for images, labels in batches()]
    assert compare(given, given).effect == "identical"
