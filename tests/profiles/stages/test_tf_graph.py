"""A tf.data pipeline taken apart and put together again with one thing done at a time."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from unstall.profiles.stages.places import is_library, note_places
from unstall.profiles.stages.tf_graph import CutError, kind_of, nodes, rebuilt, unknown_shape_in


def plus_one(x: Any) -> Any:
    return x + 1


def elements(dataset: Any) -> list[Any]:
    return [np.asarray(one).tolist() for one in dataset]


def a_generator() -> Any:
    yield from range(6)


PIPELINES = {
    "map": lambda: tf.data.Dataset.range(6).map(plus_one, num_parallel_calls=2),
    "map with AUTOTUNE": lambda: tf.data.Dataset.range(6).map(plus_one, num_parallel_calls=tf.data.AUTOTUNE),
    "batch": lambda: tf.data.Dataset.range(6).map(plus_one, num_parallel_calls=2).batch(4).prefetch(2),
    "parallel batch": lambda: tf.data.Dataset.range(6).batch(4, num_parallel_calls=2, drop_remainder=True),
    "interleave": lambda: tf.data.Dataset.range(3).interleave(
        lambda x: tf.data.Dataset.from_tensors(x), cycle_length=2, num_parallel_calls=2
    ),
    "take, skip, repeat": lambda: (
        tf.data.Dataset.range(6).map(plus_one, num_parallel_calls=2).skip(1).take(3).repeat(2)
    ),
    "filter": lambda: tf.data.Dataset.range(6).map(plus_one, num_parallel_calls=2).filter(lambda x: x > 3),
    "flat_map": lambda: (
        tf.data.Dataset.range(3).map(plus_one, num_parallel_calls=2).flat_map(lambda x: tf.data.Dataset.range(x))
    ),
    "zip": lambda: tf.data.Dataset.zip(
        (tf.data.Dataset.range(6).map(plus_one, num_parallel_calls=2), tf.data.Dataset.range(6))
    ).map(lambda x, y: x * y, num_parallel_calls=2),
    "concatenate": lambda: (
        tf.data.Dataset.range(3)
        .map(plus_one, num_parallel_calls=2)
        .concatenate(tf.data.Dataset.range(2).map(plus_one, num_parallel_calls=2))
    ),
    "unbatch": lambda: tf.data.Dataset.range(6).batch(2).map(plus_one, num_parallel_calls=2).unbatch().batch(3),
    "padded_batch": lambda: (
        tf.data.Dataset.range(1, 4).map(lambda x: tf.range(x), num_parallel_calls=2).padded_batch(3)
    ),
    "enumerate": lambda: (
        tf.data.Dataset.range(4).map(plus_one, num_parallel_calls=2).enumerate().map(lambda i, x: i * x)
    ),
    "scan": lambda: (
        tf.data.Dataset.range(4).map(plus_one, num_parallel_calls=2).scan(np.int64(0), lambda s, x: (s + x, s))
    ),
    "shard": lambda: tf.data.Dataset.range(6).map(plus_one, num_parallel_calls=2).shard(2, 1),
    "window": lambda: (
        tf.data.Dataset.range(6).map(plus_one, num_parallel_calls=2).window(2).flat_map(lambda one: one.batch(2))
    ),
    "rebatch": lambda: tf.data.Dataset.range(6).map(plus_one, num_parallel_calls=2).batch(2).rebatch(3),
    "generator": lambda: tf.data.Dataset.from_generator(a_generator, output_signature=tf.TensorSpec((), tf.int64)).map(
        plus_one, num_parallel_calls=2
    ),
    "cardinality": lambda: (
        tf.data.Dataset.range(6).map(plus_one, num_parallel_calls=2).apply(tf.data.experimental.assert_cardinality(6))
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_serial_pipeline_gives_the_same_elements(name: str) -> None:
    dataset = PIPELINES[name]()
    one_by_one = rebuilt(nodes(dataset))[-1]
    assert elements(one_by_one) == elements(dataset)
    assert one_by_one.element_spec == dataset.element_spec


@pytest.mark.parametrize("name", PIPELINES)
def test_a_serial_pipeline_has_nothing_parallel_in_it(name: str) -> None:
    graph = rebuilt(nodes(PIPELINES[name]()))[-1]._as_serialized_graph().numpy()
    operations = {node.op for node in tf.compat.v1.GraphDef.FromString(graph).node}
    assert [op for op in operations if "Parallel" in op or "Prefetch" in op] == []


def test_functions_are_not_traced_again() -> None:
    traced = []

    def counted(x: Any) -> Any:
        traced.append(1)
        return x

    dataset = tf.data.Dataset.range(4).map(counted, num_parallel_calls=2).batch(2)
    before = len(traced)
    rebuilt(nodes(dataset))
    assert len(traced) == before


def test_nodes_come_in_the_order_in_which_an_element_passes() -> None:
    found = nodes(PIPELINES["zip"]())
    assert [node.kind for node in found] == ["range", "map", "range", "zip", "map"]
    assert [node.inputs for node in found] == [(), (0,), (), (1, 2), (3,)]


def test_a_node_has_the_name_and_the_place_of_the_users_function() -> None:
    node = nodes(PIPELINES["map"]())[-1]
    assert node.name == "plus_one"
    assert node.location == f"test_tf_graph.py:{plus_one.__code__.co_firstlineno}"
    assert not node.python


def test_what_a_library_maps_has_the_name_and_the_place_of_the_users_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cats/1.png", "dogs/1.png"):
        (tmp_path / name).parent.mkdir()
        tf.io.write_file(str(tmp_path / name), tf.io.encode_png(np.zeros((4, 4, 3), np.uint8)))

    def a_directory() -> Any:
        return tf.keras.utils.image_dataset_from_directory(tmp_path, image_size=(2, 2), verbose=False)

    assert {(node.name, node.location) for node in nodes(a_directory()) if node.kind == "map"} == {
        ("image_dataset_utils", None)
    }
    monkeypatch.setattr(tf.data.Dataset, "__init__", tf.data.Dataset.__init__)  # so that it is put back
    note_places(tf.data.Dataset)
    place = f"test_tf_graph.py:{a_directory.__code__.co_firstlineno + 1}"
    assert {(node.name, node.location) for node in nodes(a_directory()) if node.kind == "map"} == {
        ("image_dataset_from_directory", place)
    }


def test_a_function_of_a_notebook_cell_keeps_its_name() -> None:
    cell: dict[str, Any] = {}
    exec(compile("def halved(x):\n    return x / 2\n", "<ipython-input-1-0a>", "exec"), cell)
    node = nodes(tf.data.Dataset.range(2).map(cell["halved"]))[-1]
    assert (node.name, node.location) == ("halved", "<ipython-input-1-0a>:1")


def test_a_partial_a_lambda_and_an_object_are_named() -> None:
    def add(x: Any, number: int) -> Any:
        return x + number

    class Layer:
        def __call__(self, x: Any) -> Any:
            return x

    @tf.function
    def compiled(x: Any) -> Any:
        return x + 1

    line = add.__code__.co_firstlineno
    functions = (functools.partial(add, number=2), lambda x: x + 2, Layer(), compiled, tf.keras.layers.Rescaling(1.0))
    pipeline = [nodes(tf.data.Dataset.range(2).map(function))[-1] for function in functions]
    assert [(node.name, node.location) for node in pipeline] == [
        ("add", f"test_tf_graph.py:{line}"),
        ("<lambda>", f"test_tf_graph.py:{line + 12}"),
        ("Layer", f"test_tf_graph.py:{line + 4}"),
        ("compiled", f"test_tf_graph.py:{line + 7}"),
        ("Rescaling", None),  # Keras' own code is no place in the script
    ]


def test_python_code_in_a_stage_is_seen() -> None:
    def through_numpy(x: Any) -> Any:
        return tf.numpy_function(lambda y: y, [x], tf.int64)

    found = nodes(tf.data.Dataset.range(2).map(through_numpy).map(plus_one))
    assert [node.python for node in found] == [False, True, False]


def test_a_generator_is_named_as_the_user_wrote_it() -> None:
    assert "from_generator" in [node.name for node in nodes(PIPELINES["generator"]())]


def test_what_lies_before_a_cache_no_longer_runs() -> None:
    dataset = tf.data.Dataset.range(4).map(plus_one).cache().map(plus_one, num_parallel_calls=2).batch(2)
    list(dataset)
    found = nodes(dataset)
    assert [node.kind for node in found] == ["cache", "map", "batch"]
    assert elements(rebuilt(found)[-1]) == elements(dataset)


def test_options_are_no_node() -> None:
    dataset = tf.data.Dataset.range(4).with_options(tf.data.Options()).batch(2)
    assert [node.kind for node in nodes(dataset)] == ["range", "batch"]


def test_a_source_can_be_put_in_the_place_of_a_node() -> None:
    found = nodes(tf.data.Dataset.range(4).shuffle(4).map(plus_one, num_parallel_calls=2).batch(2))
    replaced = rebuilt(found, replaced={1: tf.data.Dataset.from_tensor_slices(tf.constant([5, 7], tf.int64))})
    assert elements(replaced[-1]) == [[6, 8]]


def test_a_shuffle_keeps_every_element_and_leaves_the_global_seed_alone() -> None:
    dataset = tf.data.Dataset.range(20).map(plus_one, num_parallel_calls=2).shuffle(5)
    tf.random.set_seed(3)
    expected = tf.random.uniform(()).numpy()
    tf.random.set_seed(3)
    one_by_one = rebuilt(nodes(dataset))[-1]
    assert tf.random.uniform(()).numpy() == expected
    assert sorted(elements(one_by_one)) == list(range(1, 21))


def test_what_cannot_be_built_again_is_said() -> None:
    dataset = (
        tf.data.Dataset.range(4)
        .map(plus_one, num_parallel_calls=2)
        .group_by_window(lambda x: x % 2, lambda _, window: window.batch(2), window_size=2)
    )
    with pytest.raises(CutError, match="group_by_window cannot be built again"):
        rebuilt(nodes(dataset))


def test_kinds_are_what_a_user_writes() -> None:
    assert kind_of(tf.data.Dataset.from_tensor_slices([1])) == "from_tensor_slices"
    assert kind_of(tf.data.Dataset.range(3).padded_batch(2)) == "padded_batch"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("<ipython-input-3-0a1b2c3d>", False),
        ("<command-12>", False),
        ("/tmp/ipykernel_12/34.py", False),
        ("<frozen importlib._bootstrap>", True),
        ("<string>", True),
        ("/usr/lib/python3/dist-packages/numpy/core.py", True),
    ],
)
def test_a_cell_of_a_notebook_is_no_library(file, expected):
    assert is_library(file) is expected


def test_noting_places_ends_where_it_began():
    class Data:
        pass

    begun = Data.__init__
    end = note_places(Data)
    assert Data.__init__ is not begun
    end()
    assert Data.__init__ is begun


def decoded(channels: int) -> Any:
    """Returns a pipeline whose function decodes images, with 0 channels of a number that TensorFlow does not know."""
    jpeg = tf.io.encode_jpeg(tf.zeros((8, 8, 3), tf.uint8)).numpy()

    def load(data: Any) -> Any:
        return tf.image.resize(tf.io.decode_jpeg(data, channels=channels), (4, 4)), 1.0

    return tf.data.Dataset.from_tensors(jpeg).map(load).repeat(4).batch(2)


def of_any_rank(x: Any) -> Any:
    return tf.numpy_function(lambda y: y, [x], tf.int64)


def test_a_shape_that_is_not_known_is_told_with_the_function_that_made_it() -> None:
    found = unknown_shape_in(decoded(0))
    line = decoded.__code__.co_firstlineno + 4
    assert found == f"(None, 4, 4, None) from load (test_tf_graph.py:{line}) on"
    assert unknown_shape_in(decoded(3)) is None
    line = of_any_rank.__code__.co_firstlineno
    any_rank = tf.data.Dataset.range(4).map(of_any_rank)
    assert unknown_shape_in(any_rank.prefetch(1)) == f"of any rank from of_any_rank (test_tf_graph.py:{line}) on"
    sequences = tf.data.Dataset.range(1, 4).map(lambda length: tf.zeros((length, 5))).padded_batch(2)
    assert unknown_shape_in(sequences) is None and unknown_shape_in([1, 2]) is None
