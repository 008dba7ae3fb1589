"""Reads a tf.data pipeline: its nodes and functions, which of them draw random numbers; and builds a pipeline again.

This module does not import TensorFlow at its top: a script on another backend may not have TensorFlow installed.

Over 400 lines: all private names of TensorFlow that this package uses are in this file, so that only this file has to
be checked against a new version of TensorFlow.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Literal
from unittest import mock

from unstall.profiles.code_line import named
from unstall.profiles.stages.places import Place, place_of

_CACHES = re.compile(r"_?(Cache|Snapshot)Dataset\w*")
# Ops that draw random numbers, by the names that TensorFlow registers. The patterns also match names of later versions
# that begin with the same words. Ops that get a seed as an input are among them, since a cache would keep their draws,
# too. The first line leaves out: a position in a permutation, which tf.data itself uses to order elements; a queue; a
# gradient; the preparation of a seed, which is followed by the op that draws.
_DRAWS = re.compile(
    r"(?!RandomIndexShuffle|RandomShuffleQueue|RandomGammaGrad|StatelessRandomGet)"
    r"((Stateless|Stateful|Experimental|Risc)?Random\w+"
    r"|(Stateless|Stateful)(Uniform|StandardNormal|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial|Shuffle"
    r"|SampleDistortedBoundingBox)\w*"
    r"|(Parameterized)?TruncatedNormal|Multinomial|SampleDistortedBoundingBox(V2)?"
    r"|\w+CandidateSampler|SamplingDataset|Fractional(Avg|Max)Pool|StochasticCastToInt|XlaRngBitGenerator"
    r"|KmeansPlusPlusInitialization|KMC2ChainInitialization)"
)
# Private attributes that are read to build a transformation again, by its class without "_Parallel".
_ARGUMENTS = {
    "BatchDataset": ("_batch_size", "_drop_remainder"),
    "DatasetV1Adapter": ("_dataset",),
    "InterleaveDataset": ("_map_func", "_cycle_length", "_block_length"),
    "MapDataset": ("_map_func",),
    "ShuffleDataset": ("_buffer_size", "_seed", "_seed2", "_reshuffle_each_iteration"),
    "ZipDataset": ("_datasets",),
}
# Ops that run Python code that may draw. `PyFuncStateless` is none of them: there the user has promised by
# `stateful=False` that the code does not draw.
_PYTHON = ("PyFunc", "EagerPyFunc")
# A mixture of datasets. Its first input only selects the dataset of the next element, so that random numbers there
# change the order of elements and not the elements, as in a shuffle.
_MIXES = re.compile(r"_?DirectedInterleaveDataset")


class CutError(Exception):
    """This pipeline cannot be taken apart or built again; the message says why."""


def check_names(dataset: Any, needs: str, *, rebuilds: bool = False) -> None:
    """Checks that TensorFlow has the private names that reading a pipeline needs.

    Args:
      dataset: a `tf.data.Dataset`.
      needs: begins the message of the error: what needs the names, with its verb, such as "stage costs need".
      rebuilds: also check the names that building the pipeline again needs.
    Raises:
      CutError: "stage costs need tf.data's private Dataset._inputs, which TensorFlow 2.99.0 does not have".
    """
    missing = next(_missing(dataset, rebuilds), None)
    if missing is not None:
        raise CutError(_lacks(needs, f"tf.data's private {missing}"))


def _lacks(needs: str, name: str) -> str:
    return f"{needs} {name}, which TensorFlow {sys.modules['tensorflow'].__version__} does not have"


def _missing(dataset: Any, rebuilds: bool) -> Iterator[str]:
    """Yields the names that TensorFlow lacks. After the first of them, the walk over the pipeline may fail."""
    import tensorflow as tf

    for name in ("_inputs", "_functions"):
        if not callable(getattr(tf.data.Dataset, name, None)):
            yield f"Dataset.{name}"
    wrapper_class = _wrapper_class()
    if rebuilds and wrapper_class is None:
        yield "StructuredFunctionWrapper"
    for part in upstream(dataset):
        if rebuilds:
            arguments = _ARGUMENTS.get(_class(part).removeprefix("_").removeprefix("Parallel"), ())
            yield from (f"{_class(part)}.{name}" for name in arguments if not hasattr(part, name))
        for wrapper in functions_of(part):
            yield from (
                f"StructuredFunctionWrapper.{name}" for name in ("_func", "function") if not hasattr(wrapper, name)
            )


def _wrapper_class() -> Any:
    """Returns tf.data's class around a traced function, or None if TensorFlow has no such class."""
    try:
        from tensorflow.python.data.ops import structured_function  # no public name uses a traced function again
    except ImportError:
        return None
    return getattr(structured_function, "StructuredFunctionWrapper", None)


def draws(op: str) -> Literal["yes", "maybe", "no"]:
    """Returns whether a TensorFlow op draws random numbers; "maybe" for ops that run Python code.

    All functions of this module decide by this function what draws. A shuffle of elements counts as "no": it changes
    the order of the elements and not the elements.

    Args:
      op: the name that TensorFlow registers, such as "RandomUniform".
    """
    if op in _PYTHON:
        return "maybe"
    return "yes" if _DRAWS.fullmatch(op) else "no"


def random_before_cache(dataset: Any) -> tuple[str, ...]:
    """Returns the random operations upstream of a `cache` or `snapshot`, as "random_flip in augment".

    Every epoch gets what these operations drew in the first epoch. They are looked for in the functions that tf.data
    has traced: the pipeline is not run, and its data are not serialised, which takes 10 s for 1 GB of arrays. Python
    code (`numpy_function`, `py_function`) is left out, although it may draw: most of it only decodes, which belongs
    before a cache. `python_in` returns it.

    Args:
      dataset: a `tf.data.Dataset`; any other object has no such operations.
    Raises:
      CutError: if TensorFlow lacks a private name that this needs.
    """
    if not hasattr(dataset, "element_spec"):
        return ()
    check_names(dataset, "looking for random operations before a cache needs")
    operations: dict[str, None] = {}
    for part in upstream(dataset):
        if _is(_CACHES, part):
            for before in upstream(part):
                operations |= dict.fromkeys(random_in(before))
        for wrapper in functions_of(part):
            operations |= dict.fromkeys(_names(_before_inner_caches(_graph(wrapper)), wrapper))
    return tuple(operations)


def caches_in(dataset: Any) -> list[Any]:
    """Returns each `cache` of a pipeline that reads one dataset; any other object has none."""
    if not hasattr(dataset, "element_spec"):
        return []
    return [part for part in upstream(dataset) if _is(_CACHES, part) and len(part._inputs()) == 1]


def is_shuffle(dataset: Any) -> bool:
    """Whether a transformation changes the order of its elements at random."""
    return "Shuffle" in type(dataset).__name__


def random_in(dataset: Any) -> tuple[str, ...]:
    """Returns the random operations of one transformation, not of its inputs, as "random_flip in augment"."""
    operations: dict[str, None] = {"Dataset.random": None} if type(dataset).__name__ == "_RandomDataset" else {}
    for wrapper in functions_of(dataset):
        operations |= dict.fromkeys(_names(every_node(_graph(wrapper)), wrapper))
    return tuple(operations)


def python_in(dataset: Any) -> tuple[str, ...]:
    """Returns the Python code of one transformation that may draw, as "augment runs Python code (`PyFunc`)".

    A caller that puts a cache behind such code must assume that the code draws. A caller that reports faults must not
    (`random_before_cache`).
    """
    clauses: dict[str, None] = {}
    for wrapper in functions_of(dataset):
        ops = [node.op for node in every_node(_graph(wrapper)) if draws(node.op) == "maybe"]
        clauses |= dict.fromkeys(f"{_function_name(wrapper)} runs Python code (`{op}`)" for op in ops)
    return tuple(clauses)


def upstream(dataset: Any) -> Iterator[Any]:
    """Yields a dataset and all datasets that it reads, each once."""
    waiting = [dataset]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        inputs = part._inputs() if hasattr(part, "_inputs") else []
        waiting += inputs[1:] if _is(_MIXES, part) else inputs


def _is(pattern: re.Pattern[str], dataset: Any) -> bool:
    return pattern.fullmatch(type(dataset).__name__) is not None


def functions_of(dataset: Any) -> Iterable[Any]:
    """Returns the functions of one transformation, in TensorFlow's wrappers; empty where it has none."""
    return dataset._functions() if hasattr(dataset, "_functions") else ()


def _graph(wrapper: Any) -> Any:
    return wrapper.function.graph.as_graph_def()


def every_node(graph: Any) -> Iterator[Any]:
    """Yields the nodes of a function's graph and of all functions that it calls, branches and loop bodies included."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def shuffle_buffer_of(dataset: Any) -> int:
    """Returns the buffer size of a `shuffle`, in elements; below 0 for a buffer that holds all elements."""
    return int(dataset._buffer_size)


# Transformations that combine elements to batches.
BATCHING = ("batch", "padded_batch")


def batch_size_of(dataset: Any) -> int:
    """Returns the number of elements that a `batch` or a `padded_batch` combines."""
    return int(dataset._batch_size)


def is_stateful(op: str) -> bool:
    """Whether TensorFlow registers an op as stateful: running the op has an effect. False for unknown ops.

    Raises:
      CutError: if TensorFlow lacks the private name of this registry.
    """
    try:
        from tensorflow.python.framework import op_def_registry  # no public name says which ops are stateful

        definition = op_def_registry.get(op)
    except (ImportError, AttributeError) as error:
        raise CutError(
            _lacks("looking for effects of a training step needs", "TensorFlow's private op_def_registry")
        ) from error
    return definition is not None and bool(definition.is_stateful)


def user_function(wrapper: Any) -> Any:
    """Returns the function that a user passed to a transformation, without decorators and partial arguments."""
    function = wrapper._func
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.unwrap(function)


def unknown_shape_in(dataset: Any) -> str | None:
    """Returns which shape of a pipeline's batches is not known, and from which function on; None where all are known.

    Other data have no shapes.

    A shape counts as unknown without its number of axes, or without the last of three or more, which images have for
    their channels. The length of a sequence may differ.

    Returns:
      "(None, 64, 64, None) from load (train.py:12) on".
    Raises:
      CutError: as `nodes` does.
    """
    shape = _unknown_shape(dataset) if hasattr(dataset, "element_spec") else None
    if shape is None:
        return None
    pipeline = nodes(dataset, needs="the place of an unknown shape needs")
    first = next(node for node in pipeline if _unknown_shape(node.dataset))
    return f"{shape} from {first.name}{f' ({first.location})' if first.location else ''} on"


def _unknown_shape(dataset: Any) -> str | None:
    import tensorflow as tf

    for spec in tf.nest.flatten(dataset.element_spec):
        if isinstance(spec, tf.TensorSpec) and spec.shape.rank is None:
            return "of any rank"
        if isinstance(spec, tf.TensorSpec) and spec.shape.rank > 2 and spec.shape[-1] is None:
            return str(tuple(spec.shape.as_list()))
    return None


def source_of(dataset: Any) -> Any:
    """Returns the dataset that a transformation of one dataset reads, also that of a cache."""
    (source,) = dataset._inputs()
    return source


def user_code(dataset: Any) -> Any:
    """Returns what a user passed to a transformation as its function, to be traced for other elements."""
    (wrapper,) = functions_of(dataset)
    return wrapper._func


def _before_inner_caches(graph: Any) -> Iterator[Any]:
    """Yields the nodes before a cache inside a function that itself makes datasets, such as that of an `interleave`."""
    library = {function.signature.name: function for function in graph.library.function}
    for nodes in (graph.node, *(function.node_def for function in library.values())):
        by_name = {node.name: node for node in nodes}
        waiting = [node for node in nodes if _CACHES.fullmatch(node.op)]
        seen = {node.name for node in waiting}
        while waiting:
            node = waiting.pop()
            yield from _called(node, library)
            inputs = node.input[1:] if _MIXES.fullmatch(node.op) else node.input
            # An input is "node", "node:0", "node:output:0" or "^node".
            names = {name.lstrip("^").partition(":")[0] for name in inputs} & by_name.keys() - seen
            seen |= names
            waiting += [by_name[name] for name in names]


def _called(node: Any, library: dict[str, Any]) -> Iterator[Any]:
    """Yields a node, and the nodes of all functions that it calls, each once."""
    waiting = [node]
    seen: set[str] = set()
    while waiting:
        called = waiting.pop()
        yield called
        for value in called.attr.values():
            functions = [value.func] if value.WhichOneof("value") == "func" else value.list.func
            names = {function.name for function in functions} & library.keys() - seen
            seen |= names
            waiting += [inner for name in names for inner in library[name].node_def]


def _names(nodes: Iterable[Any], wrapper: Any) -> Iterator[str]:
    for node in nodes:
        if draws(node.op) == "yes":
            # Of "sequential/random_flip_1/stateless_random_uniform/StatelessRandomUniformV2" this is "random_flip_1",
            # the first scope with "random" in its name: the user wrote `RandomFlip`.
            scope = next((part for part in node.name.split("/") if "random" in part.lower()), node.op)
            yield f"{re.sub(r'_[0-9]+$', '', scope)} in {_function_name(wrapper)}"


def _function_name(wrapper: Any) -> str:
    """Returns the name of a user's function, and its place where the name says nothing: "<lambda> train.py:31"."""
    function = user_function(wrapper)
    name, code = _plain_name(function), getattr(function, "__code__", None)
    return f"{name} {_place(code)}" if name == "<lambda>" and code is not None else name


def _plain_name(function: Any) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


def _place(code: CodeType) -> str:
    return f"{named(code.co_filename)}:{code.co_firstlineno}"


# Transformations without work of their own. A pipeline that is built again has their inputs instead.
_TRANSPARENT = {"_OptionsDataset", "_PrefetchDataset", "_CopyToDeviceDataset", "_MapOnGpuDataset", "_ModelDataset"}
# Caches are sources: they are full by now, so that nothing before them runs.
_CACHE_CLASSES = {"CacheDataset", "_SnapshotDataset"}
# Transformations that take `num_parallel_calls`.
_WITH_CALLS = {"MapDataset", "BatchDataset", "InterleaveDataset"}
_PYTHON_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
# Folders of installed packages.
_LIBRARIES = {"site-packages", "dist-packages"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One transformation of a pipeline.

    Attributes:
      dataset: the pipeline as written, up to and including this transformation.
      inputs: positions of the nodes that this node reads.
      kind: the name of the transformation in the user's code: "map", "batch".
      name: of the user's function where there is one, else `kind`.
      location: "file.py:12" of that function, or None.
      python: whether the transformation runs Python code.
    """

    dataset: Any
    inputs: tuple[int, ...]
    kind: str
    name: str
    location: str | None
    python: bool


def nodes(dataset: Any, *, needs: str = "stage costs need") -> list[Node]:
    """Returns the nodes of a pipeline, each after those that it reads. A cache is a source.

    Args:
      dataset: a `tf.data.Dataset`, its caches full.
      needs: begins the message of the error, as in `check_names`.
    Raises:
      CutError: if TensorFlow lacks a private name that reading a pipeline and building it again need.
    """
    check_names(dataset, needs, rebuilds=True)
    pipeline: list[Node] = []
    positions: dict[int, int] = {}  # by `id` of the dataset

    def visit(dataset: Any) -> int:
        dataset = _unwrapped(dataset)
        if id(dataset) in positions:
            return positions[id(dataset)]
        inputs = () if _class(dataset) in _CACHE_CLASSES else tuple(visit(part) for part in dataset._inputs())
        if _class(dataset) == "_OptionsDataset":
            positions[id(dataset)] = inputs[0]
            return inputs[0]
        kind = kind_of(dataset)
        functions = [user_function(wrapper) for wrapper in functions_of(dataset)]
        name, location = _name(functions[0], kind, place_of(dataset)) if functions else (kind, None)
        python = any(_runs_python(wrapper) for wrapper in functions_of(dataset))
        positions[id(dataset)] = len(pipeline)
        pipeline.append(Node(dataset=dataset, inputs=inputs, kind=kind, name=name, location=location, python=python))
        return len(pipeline) - 1

    visit(dataset)
    return pipeline


def kind_of(dataset: Any) -> str:
    """Returns the name of a transformation in a user's code, such as "map" for a parallel map."""
    words = _class(dataset).removeprefix("_").removesuffix("V2").removesuffix("Dataset").removeprefix("Parallel")
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words).strip("_")
    return {"tensor_slice": "from_tensor_slices", "tensor": "from_tensors", "matching_files": "list_files"}.get(
        name, name
    )


def rebuilt(
    pipeline: list[Node],
    *,
    calls: int | Literal["as written"] | None = None,
    replaced: Mapping[int, Any] | None = None,
    behind: Mapping[int, Callable[[Any], Any]] | None = None,
    buffers: Mapping[int, int] | None = None,
    without: Collection[int] = (),
    calls_of: Mapping[int, int] | None = None,
    seed: int | None = 1,
) -> list[Any]:
    """Builds the pipeline again, from its traced functions: Python does not trace them a second time.

    The pipeline's options are lost: `with_options(dataset.options())` sets them again.

    Args:
      pipeline: from `nodes`.
      calls: parallel calls of each map, batch and interleave, or `tf.data.AUTOTUNE`; None for sequential ones. In both
        cases prefetches are left out. "as written" keeps the settings and the prefetches of the user.
      replaced: datasets to put in the place of some nodes, by position.
      behind: functions to apply to the dataset of some nodes, by position.
      buffers: sizes of the buffers of shuffles and prefetches, in elements, by position; as written unless given.
      without: positions of nodes to leave out; each must have one input.
      calls_of: parallel calls of some nodes, by position, where `calls` is "as written".
      seed: of each shuffle that is built again; None for the user's, which may draw from TensorFlow's global state.
    Returns:
      A dataset for each node. A node that was left out has the dataset of its input.
    Raises:
      CutError: if a transformation cannot be built again.
    """
    built: list[Any] = []
    for position, node in enumerate(pipeline):
        if replaced and position in replaced:
            dataset = replaced[position]
        else:
            inputs = [built[at] for at in node.inputs]
            if position in without:
                built.append(*inputs)
                continue
            same = all(dataset is pipeline[at].dataset for dataset, at in zip(inputs, node.inputs, strict=True))
            buffer_size = None if buffers is None else buffers.get(position)
            new = {id(pipeline[at].dataset): built[at] for at in node.inputs}
            with _traced_functions():
                if calls == "as written" and position in (calls_of or {}):
                    assert calls_of is not None
                    dataset = _again(node, inputs, new, False, calls_of[position], buffer_size, seed)
                elif calls == "as written":
                    dataset = _as_written(node, inputs, new, same, buffer_size, seed)
                else:
                    dataset = _again(node, inputs, new, same, calls, buffer_size, seed)
        built.append(behind[position](dataset) if behind and position in behind else dataset)
    return built


@contextlib.contextmanager
def python_functions_wrapped(
    pipeline: list[Node], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Wraps each Python function that `tf.numpy_function` and the like run in this pipeline, until the block ends.

    Raises:
      CutError: if TensorFlow lacks the private name of the registry of these functions.
    """
    registry = _python_functions()
    before = {}
    for node in pipeline:
        for wrapper in functions_of(node.dataset):
            for graph_node in every_node(_graph(wrapper)):
                token = graph_node.attr["token"].s.decode() if graph_node.op in _PYTHON_OPS else None
                if token in registry:
                    before[token] = registry[token]
    # `wrapped` keeps the functions alive: the registry holds weak references.
    wrapped = {token: wrap(function) for token, function in before.items()}
    registry.update(wrapped)
    try:
        yield
    finally:
        registry.update(before)


def _python_functions() -> Any:
    try:
        from tensorflow.python.ops import script_ops  # no public name gives the Python functions that ops call

        return script_ops._py_funcs._funcs
    except (ImportError, AttributeError) as error:
        raise CutError(
            _lacks("timing the lines of Python functions needs", "TensorFlow's private script_ops._py_funcs")
        ) from error


def _as_written(
    node: Node, inputs: list[Any], new: Mapping[int, Any], same: bool, buffer_size: int | None, seed: int | None
) -> Any:
    """Builds a node again with its own settings, on other inputs; the dataset itself where nothing of it changes."""
    dataset = node.dataset
    if same and buffer_size is None:
        return dataset
    if _class(dataset) == "_ShuffleDataset":
        return _shuffled(dataset, inputs[0], buffer_size, seed)
    if _class(dataset) == "_PrefetchDataset":
        if not hasattr(dataset, "_buffer_size"):
            raise CutError(
                _lacks("a prefetch as it is written needs", "tf.data's private _PrefetchDataset._buffer_size")
            )
        return inputs[0].prefetch(int(dataset._buffer_size) if buffer_size is None else buffer_size)
    return _by_constructor(dataset, new)


def _shuffled(dataset: Any, new_input: Any, buffer_size: int | None, seed: int | None) -> Any:
    """Shuffles as another shuffle does: with its seed, unless another is given, and with as many orders."""
    settings = shuffle_settings(dataset) | ({} if seed is None else {"seed": seed})
    return new_input.shuffle(shuffle_buffer_of(dataset) if buffer_size is None else buffer_size, **settings)


def shuffle_settings(dataset: Any) -> dict[str, Any]:
    """Returns the arguments of a shuffle behind the size of its buffer, without those that have tf.data's default.

    Of the two seeds that tf.data keeps, both 0 where none is set, the second is the shuffle's own.
    """
    is_seeded = (int(dataset._seed), int(dataset._seed2)) != (0, 0)
    settings: dict[str, Any] = {"seed": int(dataset._seed2)} if is_seeded else {}
    return settings if dataset._reshuffle_each_iteration else settings | {"reshuffle_each_iteration": False}


def _deterministic(dataset: Any) -> bool | None:
    """Returns the user's `deterministic` of parallel calls; None if the user gave none, or tf.data does not keep it."""
    return {"true": True, "false": False}.get(getattr(dataset, "_deterministic", "default"))


def _again(
    node: Node,
    inputs: list[Any],
    new: Mapping[int, Any],
    same: bool,
    calls: int | None,
    buffer_size: int | None,
    seed: int | None,
) -> Any:
    dataset, name = node.dataset, _class(node.dataset)
    if name in _TRANSPARENT:
        return inputs[0]
    parallel = name.startswith("_Parallel")
    if name.removeprefix("_").removeprefix("Parallel") in _WITH_CALLS and (parallel or calls is not None):
        options: dict[str, Any] = {}
        if calls is not None:
            options = {"num_parallel_calls": calls, "deterministic": _deterministic(dataset)}
        if name.endswith("MapDataset"):
            return inputs[0].map(dataset._map_func, **options)
        if name.endswith("BatchDataset"):
            return inputs[0].batch(dataset._batch_size, drop_remainder=dataset._drop_remainder, **options)
        cycle_length = inputs_at_once(dataset)
        if calls is not None and calls > 0:
            options["num_parallel_calls"] = min(calls, cycle_length)
        return inputs[0].interleave(
            dataset._map_func, cycle_length=cycle_length, block_length=dataset._block_length, **options
        )
    return _as_written(node, inputs, new, same, buffer_size, seed)


def inputs_at_once(dataset: Any) -> int:
    """Returns from how many inputs an interleave takes elements in turn, which is the most calls that it can make."""
    cycle_length = int(dataset._cycle_length)
    return cycle_length if cycle_length > 0 else os.cpu_count() or 1


def _by_constructor(dataset: Any, new: Mapping[int, Any]) -> Any:
    """Calls the constructor again. tf.data's classes keep each argument as an attribute: an underscore and its name."""
    import tensorflow as tf

    values = {}
    for name, parameter in list(inspect.signature(type(dataset).__init__).parameters.items())[1:]:
        if name == "dataset":
            (values[name],) = new.values()
        elif name == "deterministic":
            values[name] = _deterministic(dataset)
        elif hasattr(dataset, f"_{name}"):
            values[name] = tf.nest.map_structure(lambda value: _replaced(value, new), getattr(dataset, f"_{name}"))
        elif parameter.default is inspect.Parameter.empty:
            raise CutError(f"tf.data's {kind_of(dataset)} cannot be built again: its {name} is not known")
    try:
        return type(dataset)(**values)
    except (TypeError, ValueError, AttributeError) as error:
        raise CutError(f"tf.data's {kind_of(dataset)} cannot be built again: {error}") from error


def _replaced(value: Any, new: Mapping[int, Any]) -> Any:
    import tensorflow as tf

    if not isinstance(value, tf.data.Dataset):
        return value
    written = _unwrapped(value)
    while _class(written) == "_OptionsDataset":
        written = _unwrapped(written._inputs()[0])
    return new.get(id(written), value)


class _traced_functions:
    """While this block runs, tf.data does not trace a function again that is traced already."""

    def __enter__(self) -> None:
        from tensorflow.python.data.ops import structured_function  # no public name uses a traced function again

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


def _name(function: Any, kind: str, made_by: Place | None) -> tuple[str, str | None]:
    """Returns a function's name and location, in words of the user's.

    TensorFlow's own functions have the name of the transformation, and no location. A function of another library, such
    as one inside of Keras' `image_dataset_from_directory`, has the name and the place of the call that made it.

    Args:
      made_by: the user's call that made the dataset; None where it was not noted.
    """
    name = _plain_name(function)
    code = getattr(function, "__code__", None)
    if code is None:  # a callable object: of a class of the user's, or a Keras layer, whose code is no place of theirs
        code = getattr(type(function).__call__, "__code__", None)
        return name, None if code is None or _is_of_a_package(code) else _place(code)
    if code.co_filename.startswith(str(Path(sys.modules["tensorflow"].__file__ or "").parent)):
        return ("from_generator" if name == "flat_map_fn" else kind), None
    if _is_of_a_package(code):
        return (Path(code.co_filename).stem, None) if made_by is None else (made_by.called or kind, str(made_by))
    return name, _place(code)


def _is_of_a_package(code: CodeType) -> bool:
    """Whether code is of an installed package. The code of a notebook's cell is the user's own."""
    return bool(_LIBRARIES & {*Path(code.co_filename).parts})


def _runs_python(wrapper: Any) -> bool:
    return any(node.op in _PYTHON_OPS for node in every_node(_graph(wrapper)))
