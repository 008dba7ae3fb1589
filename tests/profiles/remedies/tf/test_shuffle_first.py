"""Shuffles that move to the source of a pipeline, or behind a cache."""

from __future__ import annotations

import pytest

from tests.profiles.remedies.tf.pipelines import IMAGES, decode, source, taken_apart
from unstall.profiles.stages import nodes


def test_a_shuffle_of_images_goes_to_the_source():
    data, remedies = taken_apart(source().map(decode).shuffle(100).batch(8), needs=["edges"])
    assert remedies["shuffle-first"].effect == "other order"
    kinds = [node.kind for node in nodes(data.built(("shuffle-first",), 25))]
    assert kinds == ["range", "shuffle", "map", "batch"]
    assert "shuffle-first" not in taken_apart(source().shuffle(100).map(decode).batch(8), needs=["edges"])[1]


def test_an_epoch_that_begins_by_filling_a_shuffle_needs_what_waiting_needs():
    _, remedies = taken_apart(source().map(decode).shuffle(IMAGES).batch(8), needs=["edges"])
    assert {"cache", "parallel", "shuffle-first"} <= remedies.keys()
    _, remedies = taken_apart(source().shuffle(IMAGES).map(decode).batch(8), needs=["edges"])
    assert not {"cache", "parallel"} & remedies.keys()


@pytest.mark.parametrize("name", ["shuffle-first", "cache"])
def test_a_shuffle_that_moves_keeps_its_seed_and_its_orders(name):
    def shuffled(dataset):
        return dataset.shuffle(IMAGES, seed=7, reshuffle_each_iteration=False)

    dataset = shuffled(source()).map(decode) if name == "cache" else shuffled(source().map(decode))
    data, remedies = taken_apart(dataset.batch(8))
    assert ".shuffle(200, seed=7, reshuffle_each_iteration=False)" in remedies[name].code
    built = data.whole((name,))
    first, second = ([int(image[0, 0, 0]) for images, _ in built for image in images] for _ in range(2))
    assert first == second != sorted(first) and sorted(first) == list(range(IMAGES))


def test_a_shuffle_of_what_is_made_calls_for_faster_stages_before_the_tuner():
    _, remedies = taken_apart(source().map(decode).shuffle(IMAGES).batch(8), needs=["edges"])
    assert [name for name in remedies if name in ("parallel", "tuner-off")] == ["parallel", "tuner-off"]
