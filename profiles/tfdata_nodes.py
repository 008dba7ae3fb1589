"""A tf.data pipeline as Python sees it: its nodes, their names, and the same pipeline built again with changes."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.python.data.ops import structured_function  # there is no public way to use a traced function again
from tensorflow.python.ops import script_ops  # nor to see which Python functions it calls

from profiles.tfdata_graph import every_node, user_function

# What adds no work of its own: its input stands for it.
_TRANSPARENT = {"_OptionsDataset", "_PrefetchDataset", "_CopyToDeviceDataset", "_MapOnGpuDataset", "_ModelDataset"}
# A cache is read as it is: filled by now, so that what lies before it no longer runs.
_CACHES = {"CacheDataset", "_SnapshotDataset"}
# What tf.data can do in several calls at once.
_WITH_CALLS = {"MapDataset", "BatchDataset", "InterleaveDataset"}
_PYTHON_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
_TENSORFLOW = str(Path(tf.__file__).parent)


class CutError(Exception):
    """This pipeline cannot be taken apart; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One transformation of a pipeline.

    Attributes:
      dataset: the pipeline up to and including it, as written.
      inputs: positions of the nodes that it reads.
      kind: as the user wrote it: "map", "batch".
      name: the user's function where there is one, else `kind`.
      location: "file.py:12" of that function, or None.
      python: whether it runs Python code.
    """

    dataset: Any
    inputs: tuple[int, ...]
    kind: str
    name: str
    location: str | None
    python: bool


def nodes(dataset: Any) -> list[Node]:
    """Returns the pipeline's nodes, each after those that it reads; a filled cache is a source."""
    found: list[Node] = []
    places: dict[int, int] = {}

    def visit(dataset: Any) -> int:
        dataset = _unwrapped(dataset)
        if id(dataset) in places:
            return places[id(dataset)]
        below = () if _class(dataset) in _CACHES else tuple(visit(one) for one in dataset._inputs())
        if _class(dataset) == "_OptionsDataset":
            places[id(dataset)] = below[0]
            return below[0]
        kind = kind_of(dataset)
        functions = [user_function(wrapper) for wrapper in dataset._functions()]
        name, location = _name(functions[0], kind) if functions else (kind, None)
        python = any(_runs_python(wrapper) for wrapper in dataset._functions())
        places[id(dataset)] = len(found)
        found.append(Node(dataset=dataset, inputs=below, kind=kind, name=name, location=location, python=python))
        return len(found) - 1

    visit(dataset)
    return found


def kind_of(dataset: Any) -> str:
    """Returns what a user calls the transformation, such as "map" for a parallel map."""
    words = _class(dataset).removeprefix("_").removesuffix("V2").removesuffix("Dataset").removeprefix("Parallel")
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words).strip("_")
    return {"tensor_slice": "from_tensor_slices", "tensor": "from_tensors", "matching_files": "list_files"}.get(
        name, name
    )


def serial(pipeline: list[Node], replaced: Mapping[int, Any] | None = None) -> list[Any]:
    """Builds the pipeline again with one thing done at a time: no parallel calls, nothing prefetched.

    Args:
      pipeline: from `nodes`.
      replaced: datasets to put in the place of some nodes, by position.
    Returns:
      A dataset for each node; that of a prefetch is its input's.
    Raises:
      CutError: if a transformation cannot be built again.
    """
    return rebuilt(pipeline, replaced=replaced)


def rebuilt(
    pipeline: list[Node],
    *,
    calls: int | None = None,
    replaced: Mapping[int, Any] | None = None,
    behind: Mapping[int, Callable[[Any], Any]] | None = None,
    without: Collection[int] = (),
) -> list[Any]:
    """Builds the pipeline again, without its prefetches.

    The functions are those that were traced already; Python does not run them again. A shuffle gets a seed of its own.

    Args:
      pipeline: from `nodes`.
      calls: of each map, batch and interleave at once, `tf.data.AUTOTUNE` too; None for sequential ones.
      replaced: datasets to put in the place of some nodes, by position.
      behind: what to do to the dataset of some nodes, by position.
      without: nodes to leave out; each must read one other.
    Returns:
      A dataset for each node; that of a prefetch is its input's.
    Raises:
      CutError: if a transformation cannot be built again.
    """
    built: list[Any] = []
    for position, node in enumerate(pipeline):
        if replaced and position in replaced:
            dataset = replaced[position]
        else:
            inputs = [built[one] for one in node.inputs]
            if position in without:
                built.append(*inputs)
                continue
            same = all(one is pipeline[at].dataset for one, at in zip(inputs, node.inputs, strict=True))
            with _traced_functions():
                dataset = _again(node, inputs, {id(pipeline[at].dataset): built[at] for at in node.inputs}, same, calls)
        built.append(behind[position](dataset) if behind and position in behind else dataset)
    return built


@contextlib.contextmanager
def python_functions_wrapped(
    pipeline: list[Node], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Puts a wrapped function in the place of each that `tf.numpy_function` and its like run in this pipeline."""
    registry = script_ops._py_funcs._funcs
    before = {}
    for node in pipeline:
        for wrapper in node.dataset._functions():
            for one in every_node(wrapper.function.graph.as_graph_def()):
                token = one.attr["token"].s.decode() if one.op in _PYTHON_OPS else None
                if token in registry:
                    before[token] = registry[token]
    wrapped = {token: wrap(function) for token, function in before.items()}  # the registry holds weak references
    registry.update(wrapped)
    try:
        yield
    finally:
        registry.update(before)


def _again(node: Node, inputs: list[Any], new: Mapping[int, Any], same: bool, calls: int | None) -> Any:
    dataset, name = node.dataset, _class(node.dataset)
    if name in _TRANSPARENT:
        return inputs[0]
    parallel = name.startswith("_Parallel")
    if name.removeprefix("_").removeprefix("Parallel") in _WITH_CALLS and (parallel or calls is not None):
        how: dict[str, Any] = {} if calls is None else {"num_parallel_calls": calls}
        if name.endswith("MapDataset"):
            return inputs[0].map(dataset._map_func, **how)
        if name.endswith("BatchDataset"):
            return inputs[0].batch(dataset._batch_size, drop_remainder=dataset._drop_remainder, **how)
        cycle_length = int(dataset._cycle_length)
        how["cycle_length"] = cycle_length if cycle_length > 0 else os.cpu_count() or 1
        return inputs[0].interleave(dataset._map_func, block_length=dataset._block_length, **how)
    if same:
        return dataset
    if name == "_ShuffleDataset":  # another order costs the same, and a seed of its own leaves the global state alone
        return inputs[0].shuffle(dataset._buffer_size, seed=1)
    if name == "_ZipDataset":
        return tf.data.Dataset.zip(tf.nest.map_structure(lambda one: _replaced(one, new), dataset._datasets))
    return _by_constructor(dataset, new)


def _by_constructor(dataset: Any, new: Mapping[int, Any]) -> Any:
    """Calls the constructor again: tf.data's classes keep each argument under its name, with an underscore."""
    values = {}
    for name, parameter in list(inspect.signature(type(dataset).__init__).parameters.items())[1:]:
        if name == "dataset":
            (values[name],) = new.values()
        elif hasattr(dataset, f"_{name}"):
            values[name] = tf.nest.map_structure(lambda one: _replaced(one, new), getattr(dataset, f"_{name}"))
        elif parameter.default is inspect.Parameter.empty:
            raise CutError(f"tf.data's {kind_of(dataset)} cannot be built again: its {name} is not known")
    try:
        return type(dataset)(**values)
    except (TypeError, ValueError, AttributeError) as error:
        raise CutError(f"tf.data's {kind_of(dataset)} cannot be built again: {error}") from error


def _replaced(value: Any, new: Mapping[int, Any]) -> Any:
    return new.get(id(_unwrapped(value)), value) if isinstance(value, tf.data.Dataset) else value


class _traced_functions:
    """While entered, tf.data takes a function that it traced already for what it is."""

    def __enter__(self) -> None:
        wrapper = structured_function.StructuredFunctionWrapper

        def wrap(function: Any, *arguments: Any, **options: Any) -> Any:
            return function if isinstance(function, wrapper) else wrapper(function, *arguments, **options)

        self._patch = mock.patch.object(structured_function, "StructuredFunctionWrapper", wrap)
        self._patch.start()

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


def _class(dataset: Any) -> str:
    return type(dataset).__name__


def _unwrapped(dataset: Any) -> Any:
    while _class(dataset) == "DatasetV1Adapter":
        dataset = dataset._dataset
    return dataset


def _name(function: Any, kind: str) -> tuple[str, str | None]:
    """Returns a function's name and place; TensorFlow's own go by what the user called."""
    name = getattr(function, "__name__", None) or type(function).__name__
    code = getattr(function, "__code__", None)
    if code is None:  # an object that can be called, such as a Keras layer
        return name, None
    if code.co_filename.startswith(_TENSORFLOW):
        return ("from_generator" if name == "flat_map_fn" else kind), None
    name = "lambda" if name == "<lambda>" else name
    return name, f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"


def _runs_python(wrapper: Any) -> bool:
    graph = wrapper.function.graph.as_graph_def()
    return any(node.op in _PYTHON_OPS for node in every_node(graph))
