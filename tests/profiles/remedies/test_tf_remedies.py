"""A pipeline built again with each remedy: equal elements, the user's own settings, and what must not be done."""

from __future__ import annotations

import functools
import itertools
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.builders import MS, given_to_fit
from tests.checks import run_python
from tests.planted import planted
from unstall.profiles.measure.batches import FitData
from unstall.profiles.remedies import NEEDS
from unstall.profiles.remedies.data import Failed
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.tf import cache as cache_module
from unstall.profiles.remedies.tf import made_again, stage_costs
from unstall.profiles.remedies.tf.tf_data_rebuilt import TfData
from unstall.profiles.stages import nodes, note_places, tf_stages
from unstall.profiles.stages.tf_model import written
from unstall.profiles.stages.tf_stages import tfdata_table

IMAGES = 200


def decode(index):
    return tf.ones((8, 8, 3)) * tf.cast(index, tf.float32), tf.cast(index % 2, tf.int32)


def augment(image, label):
    return tf.image.random_flip_left_right(image), label


def permute(index):
    return tf.random.experimental.index_shuffle(index, (1, 2), IMAGES - 1)


def both(index):
    return augment(*decode(index))


def flip(image):
    return image + np.float32(np.random.default_rng().random())


def augment_in_python(image, label):
    return tf.ensure_shape(tf.numpy_function(flip, [image], tf.float32), (8, 8, 3)), label


def augment_eagerly(image, label):
    return tf.ensure_shape(tf.py_function(flip, [image], tf.float32), (8, 8, 3)), label


def sharpen(image, label):
    image = tf.numpy_function(lambda image: image, [image], tf.float32, stateful=False)
    return tf.ensure_shape(image, (8, 8, 3)), label


def both_in_python(index):
    return augment_in_python(*decode(index))


@pytest.fixture(autouse=True)
def no_chance(request, monkeypatch):
    """No busy moment decides what is found: no stage waits, each takes time. Tests that are planted measure."""
    monkeypatch.setattr(made_again, "_PROBED_NS", 60_000 * MS)
    if request.node.get_closest_marker("flaky") is None:
        monkeypatch.setattr(stage_costs, "_WAITS_RATIO", 2.0)
        monkeypatch.setattr(stage_costs, "_MATTERS_RATIO", -1.0)


def source():
    return tf.data.Dataset.range(IMAGES)


PIPELINES = {
    "plain": lambda: source().map(decode).map(augment).batch(8),
    "shuffled": lambda: source().shuffle(IMAGES).map(decode).map(augment).batch(8),
    "permuted": lambda: source().map(permute).map(decode).map(augment).batch(8),
    "one function": lambda: source().map(both).batch(8),
    "frozen": lambda: source().map(both).cache().batch(8),
    "autotuned": lambda: source().map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(8).prefetch(tf.data.AUTOTUNE),
    "Python draws": lambda: source().map(decode).map(augment_in_python).batch(8),
    "eager Python draws": lambda: source().map(decode).map(augment_eagerly).batch(8),
    "Python draws nothing": lambda: source().map(decode).map(sharpen).map(augment).batch(8),
    "one function in Python": lambda: source().map(both_in_python).batch(8),
    "endless": lambda: source().map(decode).repeat().batch(8),
}


# An epoch of what is built, of 8 images each: 25 are all of an epoch.
BATCHES = 5
ROOM = Room(calls=2, memory_bytes=1e9, disk_bytes=1e9)
CACHE_BYTES = IMAGES * (8 * 8 * 3 * 4 + 4)


def taken_apart(dataset, needs=NEEDS, room=ROOM, **settings):
    data = TfData(dataset, needs=needs, room=room, **settings)
    return data, {remedy.name: remedy for remedy in data.remedies}


@functools.cache
def apart(name):
    """One of the pipelines, taken apart once; tests build from it, and change nothing in it."""
    tf.random.set_seed(None)  # with a seed of another test the shuffle would have one of its own
    return taken_apart(PIPELINES[name]())


def dataset_of(built):
    return built.arguments["x"].take(built.arguments["steps_per_epoch"]) if isinstance(built, FitData) else built


def seen(built) -> list[int]:
    return sorted(int(image[0, 0, 0]) for images, _ in dataset_of(built) for image in images.numpy())


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


def settings(dataset):
    return [
        (node.kind, *written(node.dataset), getattr(node.dataset, "_deterministic", None))
        for node in nodes(dataset)
        if node.kind != "take"
    ]


def test_what_an_epoch_does_once_is_no_stage_to_run_in_parallel():
    """As `tuned.py` plans an epoch: one element, from which the batches are cut."""

    def plan(number):
        return tf.random.shuffle(tf.range(IMAGES, dtype=tf.int64))

    def load(indices):
        return tf.ones((8, 8, 8, 3)), indices

    for planned, several in (
        (tf.data.Dataset.range(1).map(plan).rebatch(8), False),
        (source().map(permute).batch(8), True),
    ):
        _, remedies = taken_apart(planned.map(load, num_parallel_calls=2))
        assert ("parallel" in remedies) is several


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


def test_the_tuner_off_leaves_no_choice_to_autotune():
    data, _ = apart("autotuned")
    built = data.built(("tuner-off",), 5)
    assert [
        (kind, calls, buffer) for kind, calls, buffer, tuned, _ in settings(built) if kind in ("map", "prefetch")
    ] == [
        ("map", 2, None),
        ("prefetch", None, 2),
    ]


def test_a_whole_epoch_is_the_users_own_pipeline():
    data, _ = apart("shuffled")
    assert settings(data.built((), 25)) == settings(PIPELINES["shuffled"]())
    assert len(seen(data.built((), 25))) == IMAGES


@pytest.mark.parametrize("name", ["plain", "shuffled", "permuted"])
def test_a_cache_goes_behind_the_last_stage_that_draws_nothing(name):
    data, remedies = apart(name)
    cache = remedies["cache"]
    assert cache.code == (".cache().shuffle(200) behind decode" if name == "shuffled" else ".cache() behind decode")
    assert cache.effect == ("other order" if name == "shuffled" else "identical")
    assert cache.memory_bytes == CACHE_BYTES and cache.warms_up
    assert data.untried == []


@pytest.mark.parametrize("times", [1, 2])
def test_nothing_is_written_behind_a_call_that_makes_several_stages(times, monkeypatch):
    monkeypatch.setattr(tf.data.Dataset, "__init__", tf.data.Dataset.__init__)
    note_places(tf.data.Dataset)
    dataset = source().shuffle(50).map(decode)
    for _ in range(times):
        dataset = dataset.map(lambda image, label: (image / 2, label))
    cache = taken_apart(dataset.batch(8))[1]["cache"]
    assert [edit.kind for edit in cache.edits] == (["remove", "behind", "behind"] if times == 1 else [])


# What `keras.utils.*_dataset_from_directory` reads: (ending, content) of a file.
FILES = {
    "image": ("png", lambda: tf.io.encode_png(np.zeros((4, 4, 3), np.uint8))),
    "text": ("txt", lambda: b"a text"),
    "audio": ("wav", lambda: tf.audio.encode_wav(np.zeros((9, 1), np.float32), 8_000)),
}


@pytest.mark.parametrize(
    ("arguments", "behind"),
    [
        ({}, [".cache()", ".shuffle(8)"]),
        ({"seed": 3}, [".cache()", ".shuffle(8, seed=3)"]),
        ({"shuffle": False}, [".cache()"]),
    ],
    ids=["shuffled", "with a seed", "in order"],
)
@pytest.mark.parametrize("kind", FILES)
def test_a_cache_goes_behind_a_librarys_call_that_ends_with_a_prefetch(kind, arguments, behind, tmp_path, monkeypatch):
    for number in range(20):
        ending, content = FILES[kind]
        path = tmp_path / "ab"[number % 2] / f"{number}.{ending}"
        path.parent.mkdir(exist_ok=True)
        tf.io.write_file(str(path), content())
    monkeypatch.setattr(tf.data.Dataset, "__init__", tf.data.Dataset.__init__)
    note_places(tf.data.Dataset)
    function = getattr(keras.utils, f"{kind}_dataset_from_directory")
    if "seed" in arguments:
        dataset = function(tmp_path, batch_size=4, verbose=False, seed=3)
    else:
        dataset = function(tmp_path, batch_size=4, verbose=False, **arguments)
    data, remedies = taken_apart(dataset)
    assert [edit.text for edit in remedies["cache"].edits] == behind
    kinds = [node.kind for node in nodes(data.built(("cache",), 5))]
    assert kinds == ["cache", "shuffle"][: len(behind)]


def test_a_cache_goes_in_front_of_a_prefetch_of_the_users(monkeypatch):
    monkeypatch.setattr(tf.data.Dataset, "__init__", tf.data.Dataset.__init__)
    note_places(tf.data.Dataset)
    data, _ = taken_apart(source().map(decode).batch(8).prefetch(2))
    assert [node.kind for node in nodes(data.built(("cache",), 25))] == ["cache", "batch", "prefetch"]


@pytest.mark.parametrize(
    ("name", "behind"),
    [("Python draws", "decode"), ("eager Python draws", "decode"), ("Python draws nothing", "sharpen")],
)
def test_a_cache_goes_in_front_of_python_code_that_draws(name, behind):
    _, remedies = apart(name)
    assert remedies["cache"].code == f".cache() behind {behind}"


def test_a_cache_behind_python_code_that_draws_is_refused():
    data, remedies = apart("one function in Python")
    assert "cache" not in remedies
    [untried] = data.untried
    assert untried.name == "cache" and untried.reason.startswith(
        "both_in_python runs Python code (`PyFunc`), which draws"
    )


def test_python_code_that_makes_the_same_twice_may_be_cached_and_that_is_said():
    dataset = source().map(lambda index: tf.numpy_function(np.sqrt, [tf.cast(index, tf.float32)], tf.float32))
    dataset = dataset.map(lambda number: (tf.ones((8, 8, 3)) * tf.ensure_shape(number, ()), 1)).batch(8)
    _, remedies = taken_apart(dataset)
    assert "runs Python code, and 64 elements were the same when made again" in remedies["cache"].text
    assert remedies["parallel"].effect == "identical"


def test_a_cached_pipeline_still_draws_anew_and_orders_anew():
    data, _ = apart("shuffled")
    cached = data.built(("cache",), BATCHES)
    first, second = ([images.numpy() for images, _ in cached] for _ in range(2))
    orders = [[int(image[0, 0, 0]) for images in epoch for image in images] for epoch in (first, second)]
    assert sorted(orders[0]) == sorted(orders[1]) and orders[0] != orders[1]


def test_a_cache_behind_a_draw_is_refused():
    data, remedies = apart("one function")
    assert "cache" not in remedies
    [untried] = data.untried
    assert untried.reason.startswith("random_flip_left_right in both is random")


def test_a_cache_that_does_not_fit_into_memory_goes_to_disk_or_is_refused():
    data, remedies = taken_apart(PIPELINES["plain"](), room=Room(calls=2, memory_bytes=1000, disk_bytes=1e9))
    assert remedies["cache-on-disk"].disk_bytes == CACHE_BYTES and "cache" not in remedies
    assert remedies["cache-on-disk"].code == '.cache("train.cache") behind decode'
    [untried] = data.untried
    assert "MB behind `decode` are more than 0 MB of memory" in untried.reason
    built = data.built(("cache-on-disk",), BATCHES)
    assert seen(built) == seen(built) == list(range(BATCHES * 8))
    folder = data._folder
    assert any(folder.rglob("cache*.index"))
    data.close()
    assert not folder.exists()
    data, remedies = taken_apart(PIPELINES["plain"](), room=Room(calls=2, memory_bytes=1000, disk_bytes=1000))
    assert not remedies.keys() & {"cache", "cache-on-disk"}
    assert data.untried[0].reason.endswith(", and more than the disk has room for")


def random_brightness(image, label):
    return image + tf.random.uniform(()), label


def test_a_cache_that_freezes_draws_goes_in_front_of_them():
    tf.random.set_seed(None)  # with a seed of another test every epoch would draw the same
    frozen = source().map(decode).map(random_brightness).cache().batch(8)
    data, remedies = taken_apart(frozen, needs=["drawn once"])
    assert list(remedies) == ["cache-before-drawing"]
    assert remedies["cache-before-drawing"].effect == "other draws"

    def epochs(names):
        built = data.built(names, BATCHES)
        return [np.concatenate([images.numpy() for images, _ in built]) for _ in range(2)]

    first, second = epochs(())
    assert np.array_equal(first, second)
    first, second = epochs(("cache-before-drawing",))
    assert len(first) == BATCHES * 8 and not np.array_equal(first, second)
    assert np.all(first - second < 1)


def test_a_function_of_batches_is_found_and_one_of_elements_is_not():
    def halve(index):
        return tf.cast(index, tf.float32)[..., None] / 2

    def of_one(index):
        return tf.ensure_shape(tf.cast(index, tf.float32), ())

    data, remedies = taken_apart(source().map(halve).batch(8))
    assert remedies["batches-first"].code == ".batch(8).map(halve)"
    assert data.compared(("batches-first",)).effect == "identical"
    assert [node.kind for node in nodes(data.built(("batches-first",), 25))][-2:] == ["batch", "map"]
    assert "batches-first" not in taken_apart(source().map(of_one).batch(8))[1]


def csv_lines(folder):
    def parse(line):
        fields = tf.io.decode_csv(line, [0.0] * 4)
        return tf.stack(fields[:-1], axis=-1), fields[-1]

    (folder / "rows.csv").write_text("".join(f"{n},{n + 1},{n + 2},{n % 2}\n" for n in range(256)))
    return tf.data.TextLineDataset(str(folder / "rows.csv")).map(parse)


def records(folder):
    def parse(record):
        parsed = tf.io.parse_single_example(record, {"value": tf.io.FixedLenFeature([], tf.float32)})
        return parsed["value"]

    with tf.io.TFRecordWriter(str(folder / "rows.tfrecord")) as file:
        for number in range(256):
            value = tf.train.Feature(float_list=tf.train.FloatList(value=[number]))
            file.write(tf.train.Example(features=tf.train.Features(feature={"value": value})).SerializeToString())
    return tf.data.TFRecordDataset(str(folder / "rows.tfrecord")).map(parse)


def texts(folder):
    def clean(text):
        return tf.strings.regex_replace(tf.strings.lower(text), "[^a-z ]", "")

    (folder / "reviews.txt").write_text("".join(f"Review, number {n}!\n" for n in range(256)))
    return tf.data.TextLineDataset(str(folder / "reviews.txt")).map(clean)


def arrays(folder):
    return tf.data.Dataset.from_tensor_slices(np.arange(512.0).reshape(256, 2)).map(lambda row: row / 255.0)


@planted
@pytest.mark.parametrize(
    ("make", "function", "takes_batches"),
    [
        pytest.param(csv_lines, "parse", True, id="CSV"),
        pytest.param(records, "parse", False, id="TFRecord"),  # parse_example would
        pytest.param(texts, "clean", True, id="text"),
        pytest.param(arrays, "<lambda>", True, id="arrays"),
    ],
)
def test_small_elements_of_any_kind_show_what_their_calls_cost_and_come_in_batches(
    make, function, takes_batches, tmp_path, monkeypatch
):
    monkeypatch.setattr(tf_stages, "RUN_S", 0.03)
    dataset = make(tmp_path).batch(32)
    data, remedies = taken_apart(dataset, needs=["waiting"])
    assert ("batches-first" in remedies) is takes_batches
    if takes_batches:
        assert data.compared(("batches-first",)).effect == "identical"
    [stage] = [one for one in tfdata_table(dataset, cores=2.0).stages if one.name == function]
    assert stage.call_us_per_image is not None and stage.call_us_per_image > 0


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


def test_data_without_an_end_keep_their_batches_and_their_shuffles():
    endless = source().map(decode).repeat().shuffle(50).batch(8)
    data, remedies = taken_apart(endless)
    assert "parallel" in remedies
    built = data.whole(("parallel",))
    assert [len(labels) for _, labels in built.take(3)] == [8, 8, 8]
    assert [size for kind, _, size, *_ in settings(built) if kind == "shuffle"] == [50]


def test_a_part_of_the_data_an_epoch_is_no_reason_for_a_cache():
    data = given_to_fit({"x": PIPELINES["plain"](), "steps_per_epoch": 5}, NEEDS, room=ROOM)
    assert not any("cache" in remedy.name for remedy in data.remedies)
    assert any(one.name == "cache" and "steps_per_epoch" in one.reason for one in data.untried)
    whole = given_to_fit({"x": PIPELINES["plain"](), "steps_per_epoch": 25}, NEEDS, room=ROOM)
    assert any("cache" in remedy.name for remedy in whole.remedies)


def test_an_iterator_for_all_epochs_knows_the_steps_of_an_epoch():
    data, _ = taken_apart(PIPELINES["plain"](), needs=["edges"])
    assert data.built(("repeat",), 5).arguments["steps_per_epoch"] == 5
    assert data.whole(("repeat",)).arguments["steps_per_epoch"] == 25
    assert "repeat" not in taken_apart(PIPELINES["plain"](), needs=["edges"], repeats=False)[1]
    assert "repeat" not in taken_apart(PIPELINES["endless"](), needs=["edges"])[1]


@planted
def test_a_map_that_waits_gets_more_calls_than_there_are_cores():
    def wait(number):
        time.sleep(0.004)
        return number

    def load(index):
        return tf.ensure_shape(tf.numpy_function(wait, [tf.cast(index, tf.float32)], tf.float32), ())

    data, remedies = taken_apart(source().map(load).batch(8), needs=["waiting"])
    calls = remedies["pool"].calls
    assert 4 <= calls <= 32
    built = data.built(("pool",), 5)
    assert built.options().threading.private_threadpool_size == calls
    assert ("map", calls, None, False, "default") in settings(built)
    assert "pool" not in taken_apart(PIPELINES["plain"](), needs=["waiting"])[1]
    assert taken_apart(PIPELINES["plain"](), needs=["waiting"], pool_calls=9)[1]["pool"].calls == 9


@planted
def test_a_map_that_another_program_stopped_once_does_not_wait():
    calls = itertools.count()

    def stopped_once(number):
        time.sleep(0.2 if next(calls) == IMAGES // 2 else 0)
        return number

    def load(index):
        return tf.ensure_shape(tf.numpy_function(stopped_once, [tf.cast(index, tf.float32)], tf.float32), ())

    assert "pool" not in taken_apart(source().map(load).batch(8), needs=["waiting"])[1]
    assert next(calls) > IMAGES // 2  # it was stopped


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


def test_a_shuffle_of_what_is_made_calls_for_faster_stages_before_the_tuner():
    _, remedies = taken_apart(source().map(decode).shuffle(IMAGES).batch(8), needs=["edges"])
    assert [name for name in remedies if name in ("parallel", "tuner-off")] == ["parallel", "tuner-off"]


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


@pytest.mark.parametrize(("memory_bytes", "epochs"), [(1000, 3), (0.6 * CACHE_BYTES, 0)])
def test_each_epoch_reads_a_cache_that_memory_cannot_hold_from_the_disk(memory_bytes, epochs, monkeypatch):
    dropped = []
    monkeypatch.setattr(cache_module, "drop", lambda paths: dropped.append(len(paths)))
    room = Room(calls=2, memory_bytes=memory_bytes, disk_bytes=1e9)
    data, remedies = taken_apart(PIPELINES["plain"](), room=room)
    built = data.built(("cache-on-disk",), BATCHES)
    assert [len(seen(built)) for _ in range(3)] == [BATCHES * 8] * 3
    assert len(dropped) == epochs and all(files > 0 for files in dropped[1:])
    assert ("memory cannot hold that" in remedies["cache-on-disk"].text) == bool(epochs)
    assert len(seen(data.whole(("cache-on-disk",)))) == IMAGES and len(dropped) == epochs


@pytest.mark.long
def test_a_cache_on_disk_that_is_in_use_is_removed_when_the_process_ends(tmp_path):
    code = """
import tensorflow as tf, unstall
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.tf.tf_data_rebuilt import TfData
data = tf.data.Dataset.range(8).map(lambda number: tf.ones((9,)) * tf.cast(number, tf.float32)).batch(4)
data = TfData(data, needs=["waiting"], room=Room(calls=2, memory_bytes=0, disk_bytes=1e9)).whole(["cache-on-disk"])
print(len(list(data)), len(list(tf.io.gfile.glob("unstall-cache-*/*/cache*.index"))))
"""
    ended = run_python(tmp_path, "-c", code, TMPDIR=str(tmp_path))
    assert (ended.returncode, ended.stdout) == (0, "2 1\n"), ended.stderr[-2000:]
    assert list(tmp_path.iterdir()) == []
