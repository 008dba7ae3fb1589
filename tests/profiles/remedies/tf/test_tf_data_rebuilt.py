"""A pipeline built again with each remedy: equal elements, the user's own settings, and what must not be done."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tensorflow as tf

from tests.profiles.remedies.tf.pipelines import (
    BATCHES,
    IMAGES,
    PIPELINES,
    ROOM,
    apart,
    augment,
    decode,
    seen,
    settings,
    source,
    taken_apart,
)
from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.data import Failed
from unstall.profiles.remedies.remedy import Untried
from unstall.profiles.remedies.tf import REMEDIES, TfChange, stage_costs
from unstall.profiles.stages import nodes


@pytest.mark.long
@pytest.mark.parametrize("name", PIPELINES)
def test_every_remedy_serves_the_same_images(name):
    data, remedies = apart(name)
    assert {"prefetch"} <= remedies.keys() or name == "autotuned"
    expected = seen(data.built((), BATCHES))
    assert len(expected) == BATCHES * 8
    if name not in ("permuted",) and "Python" not in name:  # which draw what they serve
        assert expected == list(range(BATCHES * 8))
        for one in remedies:
            assert seen(data.built((one,), BATCHES)) == expected, one


@pytest.mark.long
@pytest.mark.parametrize("name", PIPELINES)
def test_every_remedy_keeps_what_it_claims(name):
    data, remedies = apart(name)
    order = ["identical", "other order", "close", "other draws"]
    for one, remedy in remedies.items():
        assert order.index(data.compared((one,)).effect) <= order.index(remedy.effect), one


@pytest.mark.parametrize("name", ["plain", "shuffled", "autotuned"])
def test_all_remedies_that_fit_together_serve_the_same_images(name):
    data, remedies = apart(name)
    names = [one for one in remedies if one != "shuffle-first"]
    assert data.fits(names)
    assert seen(data.built(names, BATCHES)) == list(range(BATCHES * 8))
    assert len(seen(data.whole(names))) == IMAGES


def test_the_pipeline_as_written_keeps_its_settings():
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    dataset = source().prefetch(7).map(decode, num_parallel_calls=3, deterministic=False).with_options(options)
    dataset = dataset.map(augment, num_parallel_calls=tf.data.AUTOTUNE).batch(4, num_parallel_calls=2)
    dataset = dataset.map(lambda *batch: batch).prefetch(tf.data.AUTOTUNE)
    again = taken_apart(dataset)[0].built((), BATCHES)
    assert settings(again) == settings(dataset)
    assert "take" in [node.kind for node in nodes(again)]
    assert again.element_spec == dataset.element_spec
    assert again.options().threading.private_threadpool_size == 3


def test_a_remedy_keeps_the_users_options_and_order():
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    dataset = source().map(decode, deterministic=False, num_parallel_calls=1).batch(8).with_options(options)
    data, _ = taken_apart(dataset)
    assert data.built(("parallel",), 5).options().threading.private_threadpool_size == 3
    assert data.built(("tuner-off",), 5).options().autotune.enabled is False
    assert data.built(("parallel",), 5).options().autotune.enabled is None
    assert ("map", 2, None, False, "false") in settings(data.built(("parallel",), 5))


def test_a_whole_epoch_is_the_users_own_pipeline():
    data, _ = apart("shuffled")
    assert settings(data.built((), 25)) == settings(PIPELINES["shuffled"]())
    assert len(seen(data.built((), 25))) == IMAGES


@pytest.mark.parametrize(
    ("settings", "alike"),
    [({"seed": 3, "reshuffle_each_iteration": False}, True), ({"seed": 3}, False), ({}, None)],
    ids=["always one order", "another order each epoch", "no seed"],
)
def test_what_takes_the_place_of_the_data_shuffles_as_the_data_do(settings, alike):
    """A script may divide what it shuffles by `take` and `skip`: in another order, both parts would get all images."""

    def orders(dataset):
        return [[int(label) for _, labels in dataset for label in labels] for _ in range(2)]

    def numbered(index):
        return tf.ones((2, 2, 3)), index

    dataset = source().map(numbered).shuffle(IMAGES, **settings).batch(8)
    written, remedied = orders(dataset), orders(taken_apart(dataset)[0].whole(("parallel",)))
    assert sorted(remedied[0]) == sorted(remedied[1]) == list(range(IMAGES))
    if alike is None:
        assert len({*map(tuple, written), *map(tuple, remedied)}) == 4
    else:
        assert remedied == written and (remedied[0] == remedied[1]) is alike


def test_data_without_an_end_keep_their_batches_and_their_shuffles():
    endless = source().map(decode).repeat().shuffle(50).batch(8)
    data, remedies = taken_apart(endless)
    assert "parallel" in remedies
    built = data.whole(("parallel",))
    assert [len(labels) for _, labels in built.take(3)] == [8, 8, 8]
    assert [size for kind, _, size, *_ in settings(built) if kind == "shuffle"] == [50]


def test_a_remedy_is_found_only_where_it_is_called_for():
    assert taken_apart(PIPELINES["shuffled"](), needs=[])[1] == {}
    assert "prefetch" not in taken_apart(PIPELINES["plain"](), needs=["edges"])[1]
    assert "tuner-off" not in taken_apart(PIPELINES["plain"](), needs=["waiting"])[1]
    right = source().map(decode, num_parallel_calls=2).batch(8).prefetch(2)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = False
    assert taken_apart(right.with_options(options), needs=["waiting", "edges"])[1].keys() == {"cache", "repeat"}


def test_the_remedies_of_the_largest_loss_come_first():
    by_edges, by_waiting = (
        list(taken_apart(PIPELINES["plain"](), needs=needs)[1])
        for needs in (["edges", "waiting"], ["waiting", "edges"])
    )
    assert by_edges[:2] == ["tuner-off", "repeat"]
    assert by_waiting[-2:] == ["tuner-off", "repeat"]
    assert by_edges[2:] == by_waiting[:-2] and by_edges[2:]
    assert list(apart("autotuned")[1])[-1] == "any-order"


def test_a_pipeline_that_cannot_be_built_again_is_refused():
    dataset = (
        source()
        .map(decode)
        .group_by_window(
            key_func=lambda _, label: tf.cast(label, tf.int64), reduce_func=lambda _, one: one.batch(8), window_size=8
        )
    )
    with pytest.raises(Failed, match="group_by_window cannot be built again"):
        taken_apart(dataset)


def test_a_pipeline_without_a_batch_is_refused():
    with pytest.raises(Failed, match="this pipeline gives no batch"):
        taken_apart(tf.data.Dataset.range(0).map(decode).batch(8))


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("_PrefetchDataset", "_buffer_size", "a prefetch as it is written needs tf.data's private _PrefetchDataset."),
        (
            "_ParallelMapDataset",
            "_num_parallel_calls",
            "map cannot be built again: its num_parallel_calls is not known",
        ),
    ],
)
def test_a_setting_that_tensorflow_does_not_keep_is_named(kind, name, message, monkeypatch):
    dataset = source().map(decode, num_parallel_calls=2).batch(8).prefetch(2)
    [stage] = [node.dataset for node in nodes(dataset) if type(node.dataset).__name__ == kind]
    monkeypatch.delattr(stage, name)
    with pytest.raises(Failed, match=message):
        taken_apart(dataset)


class Turned(TfChange):
    """A toy: the images of each batch in reverse order."""

    names = ("turned",)
    serves = ("interference",)

    def find(self, data):
        if data.nodes[data.last].kind != "batch":
            yield Untried(name="turned", reason="there is no batch at its end")
            return

        def turn(*batch):
            return tuple(part[::-1] for part in batch)

        def build(plan):
            plan.add_after(data.last, lambda dataset: dataset.map(turn))

        remedy = data.remedy("turned", "each batch turned round", ".map(turn)", "other order", (), at=data.last)
        yield Offer(remedy=remedy, build=build, conflicts=frozenset({"prefetch"}))


WITH_TURNED = (*REMEDIES, Turned())


def test_a_remedy_of_one_more_file_is_found_built_compared_and_combined():
    data, remedies = taken_apart(PIPELINES["plain"](), changes=WITH_TURNED)
    assert [name for name in remedies if name != "turned"] == list(apart("plain")[1])
    assert list(remedies)[-3:] == ["turned", "tuner-off", "repeat"]  # of the needs, as these have them in order
    for names in (["turned"], ["turned", "cache"], ["parallel", "turned", "cache"]):
        [(images, _), *_] = data.built(names, BATCHES)
        assert [int(image[0, 0, 0]) for image in images.numpy()] == list(range(8))[::-1]
        assert seen(data.built(names, BATCHES)) == list(range(BATCHES * 8))
        assert data.compared(names).effect == "other order"
        assert data.fits(names)
    assert not data.fits(["turned", "prefetch"]) and not data.fits(["prefetch", "cache", "turned"])
    data, remedies = taken_apart(PIPELINES["autotuned"](), changes=WITH_TURNED)
    assert "turned" not in remedies and Untried(name="turned", reason="there is no batch at its end") in data.untried


@pytest.mark.parametrize(
    ("only", "times"),
    [((), 1), (("parallel", "prefetch"), 0), (("turned",), 0), (("cache",), 1), (("parallel", "cache-on-disk"), 1)],
    ids=str,
)
def test_stages_are_timed_only_for_what_needs_their_costs(only, times, monkeypatch):
    timed = []
    monkeypatch.setattr(stage_costs.StageCosts, "time", lambda costs: timed.append(costs))
    room = ROOM if "cache-on-disk" not in only else replace(ROOM, memory_bytes=1000)
    _, remedies = taken_apart(PIPELINES["plain"](), room=room, only=only, changes=WITH_TURNED)
    assert len(timed) == times
    assert not only or {*remedies} == {*only}


def halve(index):
    return tf.cast(index, tf.float32)[..., None] / 2


def drawn_once():
    return source().map(decode).map(augment).cache()


@pytest.mark.parametrize(
    ("make", "names", "fits"),
    [
        (lambda: source().map(decode).shuffle(9).batch(8), ["cache", "shuffle-first"], False),
        (lambda: source().map(decode).shuffle(9).batch(8), ["cache", "parallel"], True),
        (lambda: source().map(halve).batch(8), ["cache", "batches-first"], False),
        (lambda: source().map(halve).batch(8).map(lambda halves: halves + 1), ["cache", "batches-first"], True),
        (lambda: source().map(halve).batch(8), ["parallel", "pool"], False),
        (
            lambda: drawn_once().map(lambda image, label: (image / 2, label)).batch(8),
            ["cache-before-drawing", "cache"],
            False,
        ),
    ],
    ids=["two orders", "a cache", "the same map", "a later map", "calls twice", "two caches"],
)
def test_remedies_fit_together_where_neither_undoes_the_other(make, names, fits):
    data, remedies = taken_apart(make(), only=names if "pool" in names else ())
    assert {*names} <= remedies.keys()
    assert data.fits(names) is data.fits(names[::-1]) is fits
