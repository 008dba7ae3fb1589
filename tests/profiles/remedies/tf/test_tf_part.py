"""Where a pipeline is cut, and how large its shuffle buffers are then."""

from __future__ import annotations

import math

import pytest
import tensorflow as tf

from unstall.profiles.remedies.tf import tf_part
from unstall.profiles.remedies.tf.tf_part import EpochPart
from unstall.profiles.stages import CutError, nodes, rebuilt, shuffle_buffer_of

ELEMENTS = 400


def double(x):
    return x * 2


def source():
    return tf.data.Dataset.range(ELEMENTS)


def endless_numbers():
    number = 0
    while True:
        yield number
        number += 1


def generated(function):
    return tf.data.Dataset.from_generator(function, output_signature=tf.TensorSpec((), tf.int64))


# Pipelines of batches of 4: the kind of node that each is cut behind, and the elements of an epoch there.
PLACES = {
    "a chain": (lambda: source().map(double).shuffle(50).batch(4).prefetch(1), "range", ELEMENTS),
    "a batch in two steps": (lambda: source().batch(2).map(double).batch(2), "range", ELEMENTS),
    "a zip": (lambda: tf.data.Dataset.zip((source().map(double), source())).shuffle(9).batch(4), "zip", ELEMENTS),
    "a filter": (lambda: source().map(double).filter(lambda x: x % 8 == 0).batch(4), "filter", ELEMENTS / 4),
    "a part": (lambda: source().shuffle(ELEMENTS).take(100).map(double).batch(4), "take", 100),
    "endless": (lambda: source().map(double).repeat().batch(4), "repeat", math.inf),
    "a generator": (lambda: generated(lambda: range(30)).map(double).batch(4), "flat_map", 30),
    "a cache": (lambda: source().map(double).filter(lambda x: x < 80).cache().batch(4), "cache", 40),
}


def part_of(dataset):
    pipeline = nodes(dataset)
    return pipeline, EpochPart(pipeline)


@pytest.mark.parametrize("name", PLACES)
def test_a_pipeline_is_cut_behind_the_last_node_that_changes_the_count(name):
    make, kind, elements = PLACES[name]
    pipeline, part = part_of(make())
    assert (type(pipeline[part.at].dataset).__name__.lower().count(kind.replace("_", "")), part.elements) == (
        1,
        elements,
    )
    assert part.length_known and part.held_by is None
    built = rebuilt(pipeline, behind=part.behind(3), buffers=part.buffers(3))[-1]
    assert [len(tf.nest.flatten(batch)[0].numpy().ravel()) for batch in built] == [4, 4, 4]


def test_images_of_an_epoch_are_those_of_its_batches():
    _, part = part_of(source().batch(2).map(double).batch(2))
    assert part.elements_per_batch == 4
    assert part.images(4) == ELEMENTS
    assert part.images(8) == 2 * ELEMENTS  # each element was two images


@pytest.mark.parametrize(
    ("buffer", "expected"),
    [
        (100, 10),  # a quarter of 400 elements, and of 40
        (ELEMENTS, 40),
        (10 * ELEMENTS, 40),  # no buffer holds more than there is
        (3, 1),
    ],
)
def test_a_shuffle_buffer_holds_as_large_a_part_of_a_cut_epoch(buffer, expected):
    pipeline, part = part_of(source().map(double).shuffle(buffer).batch(4))
    assert part.buffers(10) == {2: expected}
    built = nodes(rebuilt(pipeline, behind=part.behind(10), buffers=part.buffers(10))[-1])
    assert [shuffle_buffer_of(node.dataset) for node in built if node.kind == "shuffle"] == [expected]


def test_a_shuffle_of_batches_is_measured_in_batches():
    _, part = part_of(source().map(double).batch(4).shuffle(50))
    assert part.scales
    assert part.buffers(10) == {3: 5}


def test_nothing_is_cut_from_a_whole_epoch():
    _, part = part_of(source().map(double).shuffle(50).batch(4))
    assert not part.is_whole(99) and part.is_whole(100)
    assert part.behind(100) == part.buffers(100) == {}


def test_a_shuffle_of_an_epoch_without_an_end_is_none():
    _, part = part_of(source().repeat().map(double).shuffle(1000).batch(4))
    assert part.buffers(10) == {3: 1}
    assert not part.scales and not part.is_whole(10**6)


@pytest.mark.parametrize(
    ("make", "scales"),
    [
        (lambda: source().map(double).shuffle(100), True),
        (lambda: source().map(double).shuffle(10), False),  # too small a part of the epoch
        (lambda: source().shuffle(100).map(double), False),  # full at once
        (lambda: source().map(double).prefetch(2).shuffle(100), True),
        (lambda: source().map(double), False),
    ],
)
def test_an_epoch_is_scaled_where_filling_a_buffer_takes_much_of_it(make, scales):
    assert part_of(make().batch(4))[1].scales is scales


def test_a_large_shuffle_in_front_of_the_cut_allows_whole_epochs_only():
    _, part = part_of(source().map(double).shuffle(100).filter(lambda x: x % 8 == 0).batch(4))
    assert part.held_by == "the shuffle in front of `<lambda>`"
    assert part.is_whole(1) and part.behind(1) == part.buffers(1) == {}


def test_a_source_without_an_end_is_counted_for_some_time(monkeypatch):
    monkeypatch.setattr(tf_part, "_COUNT_S", 0.05)
    _, part = part_of(generated(endless_numbers).map(double).shuffle(100).batch(4))
    assert part.elements == math.inf and not part.length_known


def test_a_cache_that_is_never_full_is_refused(monkeypatch):
    monkeypatch.setattr(tf_part, "WARMUP_LIMIT_S", 0.05)
    with pytest.raises(CutError, match="its cache was not full after 0 s"):
        part_of(generated(endless_numbers).cache().batch(4))


def test_a_cache_is_filled_before_it_is_cut():
    made = []

    def count(x):
        made.append(int(x))
        return x

    dataset = source().map(lambda x: tf.ensure_shape(tf.numpy_function(count, [x], tf.int64), ())).cache().batch(4)
    pipeline, part = part_of(dataset)
    assert len(made) == ELEMENTS
    for _ in range(2):
        assert len(list(rebuilt(pipeline, behind=part.behind(3))[-1])) == 3
    assert len(made) == ELEMENTS
