"""The functions of a tf.data pipeline as TensorFlow traced them, and the random operations that a cache freezes."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

_CACHES = re.compile(r"_?(Cache|Snapshot)Dataset\w*")
# Ops that draw, by the names that TensorFlow registers. Those with a seed of their own count as well: what a cache
# keeps is one draw for each element, however it came about. Seeds for `shuffle` are drawn by ops of other names.
_RANDOM = re.compile(
    r"(Stateless|Stateful)(Random|Uniform|StandardNormal|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial"
    r"|Shuffle|SampleDistortedBoundingBox)\w*"
    r"|Random(Uniform|StandardNormal|Gamma|Poisson|Shuffle|Crop|Dataset)\w*"
    r"|(Parameterized)?TruncatedNormal|Multinomial|SampleDistortedBoundingBox(V2)?"
)
# Its first input only says which of the others comes next: a mixture is an order, like a shuffle.
_MIXES = re.compile(r"_?DirectedInterleaveDataset")


def random_before_cache(dataset: Any) -> tuple[str, ...]:
    """Returns the random operations upstream of a `cache` or `snapshot`, as "random_flip in augment".

    What they draw in the first epoch is what every epoch gets. The functions are those that tf.data traced: the
    pipeline is not run and its data not serialised, which takes 10 s for 1 GB of arrays. A `shuffle` is no
    augmentation. Python code (`numpy_function`, `py_function`) cannot be looked into and is left out: decoding there,
    before a cache, is right.

    Args:
      dataset: a `tf.data.Dataset`; anything else has no such operations.
    """
    found: dict[str, None] = {}
    for one in _upstream(dataset):
        if _is(_CACHES, one):
            for before in _upstream(one):
                found |= dict.fromkeys(random_in(before))
        for wrapper in _wrappers(one):
            found |= dict.fromkeys(_names(_before_inner_caches(_graph(wrapper)), wrapper))
    return tuple(found)


def random_in(dataset: Any) -> tuple[str, ...]:
    """Returns the random operations of one transformation, not of what it reads, as "random_flip in augment"."""
    found: dict[str, None] = {"Dataset.random": None} if type(dataset).__name__ == "_RandomDataset" else {}
    for wrapper in _wrappers(dataset):
        found |= dict.fromkeys(_names(every_node(_graph(wrapper)), wrapper))
    return tuple(found)


def _upstream(dataset: Any) -> Iterator[Any]:
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


def _wrappers(dataset: Any) -> Iterable[Any]:
    return dataset._functions() if hasattr(dataset, "_functions") else ()


def _graph(wrapper: Any) -> Any:
    return wrapper.function.graph.as_graph_def()


def every_node(graph: Any) -> Iterator[Any]:
    """Yields the nodes of a function and of those that it calls, branches and loop bodies included."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


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
        if _RANDOM.fullmatch(node.op):
            # "sequential/random_flip_1/stateless_random_uniform/StatelessRandomUniformV2": what the user wrote stands
            # first, among the scopes that say "random".
            scope = next((part for part in node.name.split("/") if "random" in part.lower()), node.op)
            yield f"{re.sub(r'_[0-9]+$', '', scope)} in {_function_name(wrapper)}"


def _function_name(wrapper: Any) -> str:
    function = user_function(wrapper)
    name = getattr(function, "__name__", None) or type(function).__name__
    return "a lambda" if name == "<lambda>" else name
