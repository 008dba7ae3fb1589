"""A tf.data pipeline as Python sees it: its nodes and functions, what in them draws, and the pipeline built again.

This module imports nothing of TensorFlow at its top: whoever has a dataset has imported TensorFlow already, and a
script on another backend may not have it installed.

Over 400 lines: all private names of TensorFlow that this package uses stand in this one file, which is what has to be
read again for a new version of TensorFlow.
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
from typing import Any, Literal
from unittest import mock

_CACHES = re.compile(r"_?(Cache|Snapshot)Dataset\w*")
# Ops that draw, by the names that TensorFlow registers; of a later version, what begins with the same words. Those that
# get a seed as an input count as well: what a cache keeps is one draw for each element, whatever the draw came from.
# Left out by the first line: a position in a permutation, which tf.data itself uses for an order; a queue; a gradient;
# the preparation of a seed, which the op that draws follows.
_DRAWS = re.compile(
    r"(?!RandomIndexShuffle|RandomShuffleQueue|RandomGammaGrad|StatelessRandomGet)"
    r"((Stateless|Stateful|Experimental|Risc)?Random\w+"
    r"|(Stateless|Stateful)(Uniform|StandardNormal|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial|Shuffle"
    r"|SampleDistortedBoundingBox)\w*"
    r"|(Parameterized)?TruncatedNormal|Multinomial|SampleDistortedBoundingBox(V2)?"
    r"|\w+CandidateSampler|SamplingDataset|Fractional(Avg|Max)Pool|StochasticCastToInt|XlaRngBitGenerator"
    r"|KmeansPlusPlusInitialization|KMC2ChainInitialization)"
)
# What building a transformation again takes from the dataset that was written, by its class without "_Parallel".
_ARGUMENTS = {
    "BatchDataset": ("_batch_size", "_drop_remainder"),
    "DatasetV1Adapter": ("_dataset",),
    "InterleaveDataset": ("_map_func", "_cycle_length", "_block_length"),
    "MapDataset": ("_map_func",),
    "ShuffleDataset": ("_buffer_size",),
    "ZipDataset": ("_datasets",),
}
# Python code that may draw. A `numpy_function` with `stateful=False` promises that it does not: `PyFuncStateless`.
_PYTHON = ("PyFunc", "EagerPyFunc")
# Its first input only says which of the others comes next: a mixture is an order, like a shuffle.
_MIXES = re.compile(r"_?DirectedInterleaveDataset")


class CutError(Exception):
    """This pipeline cannot be taken apart; the message says why."""


def check_names(dataset: Any, needs: str, *, rebuilds: bool = False) -> None:
    """Looks whether TensorFlow has the private names that a pipeline is read by, before anything is done with it.

    Args:
      dataset: a `tf.data.Dataset`.
      needs: what is to be done, with its verb: "stage costs need".
      rebuilds: whether the pipeline is built again, too.
    Raises:
      CutError: "stage costs need tf.data's private Dataset._inputs, which TensorFlow 2.99.0 does not have".
    """
    missing = next(_missing(dataset, rebuilds), None)
    if missing is not None:
        raise CutError(_lacks(needs, f"tf.data's private {missing}"))


def _lacks(needs: str, name: str) -> str:
    return f"{needs} {name}, which TensorFlow {sys.modules['tensorflow'].__version__} does not have"


def _missing(dataset: Any, rebuilds: bool) -> Iterator[str]:
    """Yields the names that are not there. The walk over the pipeline is sound only while none was yielded."""
    import tensorflow as tf

    for name in ("_inputs", "_functions"):
        if not callable(getattr(tf.data.Dataset, name, None)):
            yield f"Dataset.{name}"
    wrapper_class = _wrapper_class()
    if rebuilds and wrapper_class is None:
        yield "StructuredFunctionWrapper"
    for one in upstream(dataset):
        if rebuilds:
            arguments = _ARGUMENTS.get(_class(one).removeprefix("_").removeprefix("Parallel"), ())
            yield from (f"{_class(one)}.{name}" for name in arguments if not hasattr(one, name))
        for wrapper in functions_of(one):
            yield from (
                f"StructuredFunctionWrapper.{name}" for name in ("_func", "function") if not hasattr(wrapper, name)
            )


def _wrapper_class() -> Any:
    """Returns tf.data's class around a traced function, or None where it is not to be found."""
    try:
        from tensorflow.python.data.ops import structured_function  # no public way to use a traced function again
    except ImportError:
        return None
    return getattr(structured_function, "StructuredFunctionWrapper", None)


def draws(op: str) -> Literal["yes", "maybe", "no"]:
    """Says whether a TensorFlow op draws random numbers; "maybe" is Python code, which cannot be looked into.

    Every answer about a pipeline in this module comes from this one. A shuffle of elements draws nothing: it changes
    their order and not what is in them.

    Args:
      op: the name that TensorFlow registers, such as "RandomUniform".
    """
    if op in _PYTHON:
        return "maybe"
    return "yes" if _DRAWS.fullmatch(op) else "no"


def random_before_cache(dataset: Any) -> tuple[str, ...]:
    """Returns the random operations upstream of a `cache` or `snapshot`, as "random_flip in augment".

    What they draw in the first epoch is what every epoch gets. The functions are those that tf.data traced: the
    pipeline is not run and its data not serialised, which takes 10 s for 1 GB of arrays. A `shuffle` is no
    augmentation. Python code (`numpy_function`, `py_function`) cannot be looked into and is left out, since most of it
    only decodes, which belongs before a cache; `python_in` finds it.

    Args:
      dataset: a `tf.data.Dataset`; anything else has no such operations.
    Raises:
      CutError: if TensorFlow lacks a private name that this needs.
    """
    if not hasattr(dataset, "element_spec"):
        return ()
    check_names(dataset, "looking for random operations before a cache needs")
    found: dict[str, None] = {}
    for one in upstream(dataset):
        if _is(_CACHES, one):
            for before in upstream(one):
                found |= dict.fromkeys(random_in(before))
        for wrapper in functions_of(one):
            found |= dict.fromkeys(_names(_before_inner_caches(_graph(wrapper)), wrapper))
    return tuple(found)


def random_in(dataset: Any) -> tuple[str, ...]:
    """Returns the random operations of one transformation, not of what it reads, as "random_flip in augment"."""
    found: dict[str, None] = {"Dataset.random": None} if type(dataset).__name__ == "_RandomDataset" else {}
    for wrapper in functions_of(dataset):
        found |= dict.fromkeys(_names(every_node(_graph(wrapper)), wrapper))
    return tuple(found)


def python_in(dataset: Any) -> tuple[str, ...]:
    """Returns the Python code of one transformation that may draw, as "augment runs Python code (`PyFunc`)".

    Nobody can see whether it draws. Who wants to put a cache behind it has to assume that it does; who looks for
    faults in a pipeline must not (`random_before_cache`).
    """
    found: dict[str, None] = {}
    for wrapper in functions_of(dataset):
        ops = [node.op for node in every_node(_graph(wrapper)) if draws(node.op) == "maybe"]
        found |= dict.fromkeys(f"{_function_name(wrapper)} runs Python code (`{op}`)" for op in ops)
    return tuple(found)


def upstream(dataset: Any) -> Iterator[Any]:
    """Yields a dataset and all that it reads, each once."""
    waiting = [dataset]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inputs = one._inputs() if hasattr(one, "_inputs") else []
        waiting += inputs[1:] if _is(_MIXES, one) else inputs


def _is(pattern: re.Pattern[str], dataset: Any) -> bool:
    return pattern.fullmatch(type(dataset).__name__) is not None


def functions_of(dataset: Any) -> Iterable[Any]:
    """Returns the functions of one transformation as TensorFlow wraps them; none where it has none."""
    return dataset._functions() if hasattr(dataset, "_functions") else ()


def _graph(wrapper: Any) -> Any:
    return wrapper.function.graph.as_graph_def()


def every_node(graph: Any) -> Iterator[Any]:
    """Yields the nodes of a function and of those that it calls, branches and loop bodies included."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def shuffle_buffer_of(dataset: Any) -> int:
    """Returns the buffer size of a `shuffle`, in elements; below 0 where it holds whatever there is."""
    return int(dataset._buffer_size)


def batch_size_of(dataset: Any) -> int:
    """Returns the elements that a `batch` puts together."""
    return int(dataset._batch_size)


def is_stateful(op: str) -> bool:
    """Whether TensorFlow says of an op that running it has an effect; unknown ops have none.

    Raises:
      CutError: if TensorFlow lacks the private name of where that is said.
    """
    try:
        from tensorflow.python.framework import op_def_registry  # the only place that knows which ops have an effect

        known = op_def_registry.get(op)
    except (ImportError, AttributeError) as error:
        raise CutError(
            _lacks("looking for effects of a training step needs", "TensorFlow's private op_def_registry")
        ) from error
    return known is not None and bool(known.is_stateful)


def user_function(wrapper: Any) -> Any:
    """Returns the function that a user gave to a transformation, without decorators and partial arguments."""
    function = wrapper._func
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.unwrap(function)


def _before_inner_caches(graph: Any) -> Iterator[Any]:
    """Yields the nodes that come before a cache of a dataset which the function itself makes, as `interleave`'s do."""
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
    """Yields the node and those of all functions that it calls."""
    waiting = [node]
    seen: set[str] = set()
    while waiting:
        one = waiting.pop()
        yield one
        for value in one.attr.values():
            functions = [value.func] if value.WhichOneof("value") == "func" else value.list.func
            names = {function.name for function in functions} & library.keys() - seen
            seen |= names
            waiting += [inner for name in names for inner in library[name].node_def]


def _names(nodes: Iterable[Any], wrapper: Any) -> Iterator[str]:
    for node in nodes:
        if draws(node.op) == "yes":
            # "sequential/random_flip_1/stateless_random_uniform/StatelessRandomUniformV2": what the user wrote stands
            # first, among the scopes that say "random".
            scope = next((part for part in node.name.split("/") if "random" in part.lower()), node.op)
            yield f"{re.sub(r'_[0-9]+$', '', scope)} in {_function_name(wrapper)}"


def _function_name(wrapper: Any) -> str:
    function = user_function(wrapper)
    name = getattr(function, "__name__", None) or type(function).__name__
    return "a lambda" if name == "<lambda>" else name


# What adds no work of its own: its input stands for it.
_TRANSPARENT = {"_OptionsDataset", "_PrefetchDataset", "_CopyToDeviceDataset", "_MapOnGpuDataset", "_ModelDataset"}
# A cache is read as it is: filled by now, so that what lies before it no longer runs.
_CACHE_CLASSES = {"CacheDataset", "_SnapshotDataset"}
# What tf.data can do in several calls at once.
_WITH_CALLS = {"MapDataset", "BatchDataset", "InterleaveDataset"}
_PYTHON_OPS = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


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


def nodes(dataset: Any, *, needs: str = "stage costs need") -> list[Node]:
    """Returns the pipeline's nodes, each after those that it reads; a filled cache is a source.

    Args:
      needs: what they are wanted for, with its verb, for whoever is told that they are not to be had.
    Raises:
      CutError: if TensorFlow lacks a private name that reading a pipeline and building it again need.
    """
    check_names(dataset, needs, rebuilds=True)
    found: list[Node] = []
    places: dict[int, int] = {}

    def visit(dataset: Any) -> int:
        dataset = _unwrapped(dataset)
        if id(dataset) in places:
            return places[id(dataset)]
        below = () if _class(dataset) in _CACHE_CLASSES else tuple(visit(one) for one in dataset._inputs())
        if _class(dataset) == "_OptionsDataset":
            places[id(dataset)] = below[0]
            return below[0]
        kind = kind_of(dataset)
        functions = [user_function(wrapper) for wrapper in functions_of(dataset)]
        name, location = _name(functions[0], kind) if functions else (kind, None)
        python = any(_runs_python(wrapper) for wrapper in functions_of(dataset))
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
    calls: int | Literal["as written"] | None = None,
    replaced: Mapping[int, Any] | None = None,
    behind: Mapping[int, Callable[[Any], Any]] | None = None,
    buffers: Mapping[int, int] | None = None,
    without: Collection[int] = (),
) -> list[Any]:
    """Builds the pipeline again.

    The functions are those that were traced already; Python does not run them again. A shuffle gets a seed of its own.
    Options are no nodes: `with_options(dataset.options())` puts back those of the whole pipeline.

    Args:
      pipeline: from `nodes`.
      calls: of each map, batch and interleave at once, `tf.data.AUTOTUNE` too; None for sequential ones; both without
        the pipeline's prefetches. "as written" keeps the settings of each node, and its prefetches.
      replaced: datasets to put in the place of some nodes, by position.
      behind: what to do to the dataset of some nodes, by position.
      buffers: sizes of shuffle buffers, in elements, by position; as written unless given.
      without: nodes to leave out; each must read one other.
    Returns:
      A dataset for each node; that of a prefetch that was left out is its input's.
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
            buffer_size = None if buffers is None else buffers.get(position)
            new = {id(pipeline[at].dataset): built[at] for at in node.inputs}
            with _traced_functions():
                if calls == "as written":
                    dataset = _as_written(node, inputs, new, same, buffer_size)
                else:
                    dataset = _again(node, inputs, new, same, calls, buffer_size)
        built.append(behind[position](dataset) if behind and position in behind else dataset)
    return built


@contextlib.contextmanager
def python_functions_wrapped(
    pipeline: list[Node], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Puts a wrapped function in the place of each that `tf.numpy_function` and its like run in this pipeline.

    Raises:
      CutError: if TensorFlow lacks the private name of where it keeps them.
    """
    registry = _python_functions()
    before = {}
    for node in pipeline:
        for wrapper in functions_of(node.dataset):
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


def _python_functions() -> Any:
    try:
        from tensorflow.python.ops import script_ops  # there is no public way to see which Python functions it calls

        return script_ops._py_funcs._funcs
    except (ImportError, AttributeError) as error:
        raise CutError(
            _lacks("timing the lines of Python functions needs", "TensorFlow's private script_ops._py_funcs")
        ) from error


def _as_written(node: Node, inputs: list[Any], new: Mapping[int, Any], same: bool, buffer_size: int | None) -> Any:
    dataset = node.dataset
    if same and buffer_size is None:
        return dataset
    if _class(dataset) == "_ShuffleDataset":
        return _shuffled(dataset, inputs[0], buffer_size)
    if _class(dataset) == "_PrefetchDataset":
        if not hasattr(dataset, "_buffer_size"):
            raise CutError(
                _lacks("a prefetch as it is written needs", "tf.data's private _PrefetchDataset._buffer_size")
            )
        return inputs[0].prefetch(int(dataset._buffer_size))
    return _by_constructor(dataset, new)


def _shuffled(dataset: Any, new_input: Any, buffer_size: int | None) -> Any:
    """Shuffles in another order, which costs the same; a seed of its own leaves the global state alone."""
    return new_input.shuffle(shuffle_buffer_of(dataset) if buffer_size is None else buffer_size, seed=1)


def _deterministic(dataset: Any) -> bool | None:
    """Returns what the user said of the order of parallel calls; None where nothing, or where tf.data kept nothing."""
    return {"true": True, "false": False}.get(getattr(dataset, "_deterministic", "default"))


def _again(
    node: Node, inputs: list[Any], new: Mapping[int, Any], same: bool, calls: int | None, buffer_size: int | None
) -> Any:
    dataset, name = node.dataset, _class(node.dataset)
    if name in _TRANSPARENT:
        return inputs[0]
    parallel = name.startswith("_Parallel")
    if name.removeprefix("_").removeprefix("Parallel") in _WITH_CALLS and (parallel or calls is not None):
        how: dict[str, Any] = {}
        if calls is not None:
            how = {"num_parallel_calls": calls, "deterministic": _deterministic(dataset)}
        if name.endswith("MapDataset"):
            return inputs[0].map(dataset._map_func, **how)
        if name.endswith("BatchDataset"):
            return inputs[0].batch(dataset._batch_size, drop_remainder=dataset._drop_remainder, **how)
        cycle_length = int(dataset._cycle_length)
        how["cycle_length"] = cycle_length if cycle_length > 0 else os.cpu_count() or 1
        return inputs[0].interleave(dataset._map_func, block_length=dataset._block_length, **how)
    if same and buffer_size is None:
        return dataset
    if name == "_ShuffleDataset":
        return _shuffled(dataset, inputs[0], buffer_size)
    if name == "_ZipDataset":
        import tensorflow as tf

        return tf.data.Dataset.zip(tf.nest.map_structure(lambda one: _replaced(one, new), dataset._datasets))
    return _by_constructor(dataset, new)


def _by_constructor(dataset: Any, new: Mapping[int, Any]) -> Any:
    """Calls the constructor again: tf.data's classes keep each argument under its name, with an underscore."""
    import tensorflow as tf

    values = {}
    for name, parameter in list(inspect.signature(type(dataset).__init__).parameters.items())[1:]:
        if name == "dataset":
            (values[name],) = new.values()
        elif name == "deterministic":
            values[name] = _deterministic(dataset)
        elif hasattr(dataset, f"_{name}"):
            values[name] = tf.nest.map_structure(lambda one: _replaced(one, new), getattr(dataset, f"_{name}"))
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
    below = _unwrapped(value)
    while _class(below) == "_OptionsDataset":
        below = _unwrapped(below._inputs()[0])
    return new.get(id(below), value)


class _traced_functions:
    """While entered, tf.data takes a function that it traced already for what it is."""

    def __enter__(self) -> None:
        from tensorflow.python.data.ops import structured_function  # no public way to use a traced function again

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
    if code.co_filename.startswith(str(Path(sys.modules["tensorflow"].__file__ or "").parent)):
        return ("from_generator" if name == "flat_map_fn" else kind), None
    name = "lambda" if name == "<lambda>" else name
    return name, f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"


def _runs_python(wrapper: Any) -> bool:
    graph = wrapper.function.graph.as_graph_def()
    return any(node.op in _PYTHON_OPS for node in every_node(graph))
