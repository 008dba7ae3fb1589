"""Where a cache goes, in memory or on the disk, and where none may stand."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.builders import given_to_fit
from tests.checks import run_python
from tests.profiles.remedies.tf.pipelines import (
    BATCHES,
    CACHE_BYTES,
    IMAGES,
    PIPELINES,
    ROOM,
    apart,
    decode,
    seen,
    source,
    taken_apart,
)
from unstall.profiles.remedies import NEEDS
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.tf import cache
from unstall.profiles.stages import nodes, note_places


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


def test_a_part_of_the_data_an_epoch_is_no_reason_for_a_cache():
    data = given_to_fit({"x": PIPELINES["plain"](), "steps_per_epoch": 5}, NEEDS, room=ROOM)
    assert not any("cache" in remedy.name for remedy in data.remedies)
    assert any(one.name == "cache" and "steps_per_epoch" in one.reason for one in data.untried)
    whole = given_to_fit({"x": PIPELINES["plain"](), "steps_per_epoch": 25}, NEEDS, room=ROOM)
    assert any("cache" in remedy.name for remedy in whole.remedies)


@pytest.mark.parametrize(("memory_bytes", "epochs"), [(1000, 3), (0.6 * CACHE_BYTES, 0)])
def test_each_epoch_reads_a_cache_that_memory_cannot_hold_from_the_disk(memory_bytes, epochs, monkeypatch):
    dropped = []
    monkeypatch.setattr(cache, "drop", lambda paths: dropped.append(len(paths)))
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
