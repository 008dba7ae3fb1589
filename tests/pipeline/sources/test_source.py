"""The parts of a source that processes of one training divide among themselves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from unstall.pipeline import ImageSource, from_arrays, from_folder


def a_source(images: int) -> ImageSource:
    """Returns images whose pixels are their numbers; the first half is of one class, the second of another."""
    pixels = np.broadcast_to(np.arange(images, dtype=np.uint8)[:, None, None, None], (images, 2, 2, 3))
    return from_arrays(np.ascontiguousarray(pixels), (np.arange(images) * 2 // images).astype(np.int64))


def numbers(source: ImageSource) -> list[int]:
    assert isinstance(source.arrays, np.ndarray)
    return source.arrays[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 12])
def test_parts_have_no_image_in_common_and_hold_all_together(count):
    source = a_source(12)
    parts = [numbers(source.shard(number, count)) for number in range(count)]
    assert {len(part) for part in parts} == {12 // count}
    assert sorted(itertools.chain(*parts)) == list(range(12))


@pytest.mark.parametrize(("images", "count"), [(13, 2), (13, 3), (14, 3), (7, 5), (5, 4)])
def test_all_parts_are_of_the_same_length_and_the_shorter_ones_hold_their_first_image_twice(images, count):
    parts = [numbers(a_source(images).shard(number, count)) for number in range(count)]
    assert {len(part) for part in parts} == {-(-images // count)}
    assert set(itertools.chain(*parts)) == set(range(images))
    for number, part in enumerate(parts):
        twice = [image for image in set(part) if part.count(image) > 1]
        assert twice == ([] if number < images % count else [number])
    assert not any(set(one) & set(other) for one, other in itertools.combinations(parts, 2))


def test_each_part_holds_photos_of_all_classes(photos):
    source = from_folder(photos)
    parts = [source.shard(number, 2) for number in range(2)]
    assert {len(part.files) for part in parts} == {-(-source.images // 2)}
    for part in parts:
        assert set(part.labels.tolist()) == set(range(len(source.class_names)))


def test_parts_differ_in_their_fingerprint():
    source = a_source(12)
    parts = [source.shard(number, count) for count in (2, 3) for number in range(count)]
    assert len({part.fingerprint for part in (source, *parts)}) == 6


@pytest.mark.parametrize("count", [0, -1, 13])
def test_a_number_of_parts_that_cannot_be_is_refused(count):
    with pytest.raises(ValueError, match=rf"`count` must be from 1 to the 12 images. Received: count={count}\."):
        a_source(12).shard(0, count)


@pytest.mark.parametrize("number", [-1, 2])
def test_a_part_that_is_not_there_is_refused(number):
    with pytest.raises(ValueError, match=rf"`number` must be from 0 to 1, below `count`. Received: number={number}\."):
        a_source(12).shard(number, 2)
