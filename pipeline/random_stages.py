"""What must not come before a cache: a stage that draws, whose first draws would be those of every epoch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pipeline.config import ConfigError

_DRAWS = re.compile(
    r"Random(?!ShuffleQueue)\w*|\w*(Stateless|Stateful)(Random|Uniform|StandardNormal|TruncatedNormal|Multinomial|Shuffle)"
    r"\w*|\w*TruncatedNormal|Multinomial|(Stateless)?SampleDistortedBoundingBox\w*"
)
# A function that says of itself that it keeps no state is another op, `PyFuncStateless`.
_PYTHON = ("PyFunc", "EagerPyFunc")


def refuse_random_upstream(dataset: Any) -> None:
    """Refuses a dataset that draws, before it is cached.

    A `shuffle` is no draw: it freezes an order, which a shuffle behind the cache makes anew. Python code cannot be
    looked into, and is refused unless it is a `tf.numpy_function` with `stateful=False`.

    Args:
      dataset: a `tf.data.Dataset`. It is not run: the functions are those that tf.data has traced.
    Raises:
      ConfigError: naming the operation.
    """
    for one in _upstream(dataset):
        if reason := draws_in(one):
            raise ConfigError(reason)


def draws_in(dataset: Any) -> str | None:
    """Returns what in a dataset's own transformation draws, or may, and the fix; None where nothing does.

    See `refuse_random_upstream`. What it reads is not looked at.
    """
    if type(dataset).__name__ == "_RandomDataset":
        return _reason("`tf.data.Dataset.random` draws", "Put it behind the cache")
    for wrapper in dataset._functions():
        where = getattr(wrapper._func, "__name__", type(wrapper._func).__name__)
        for op in _ops(wrapper.function.graph.as_graph_def()):
            if _DRAWS.fullmatch(op):
                return _reason(f"`{op}` in {where} draws", "Put it behind the cache")
            if op in _PYTHON:
                fix = "Put it behind the cache, or say that it draws nothing: tf.numpy_function(..., stateful=False)"
                return _reason(f"{where} runs Python code (`{op}`), which may draw", fix)
    return None


def _reason(problem: str, fix: str) -> str:
    return f"{problem}, and a cache would keep the first epoch's draws for all that follow. {fix}."


def _upstream(dataset: Any) -> Iterator[Any]:
    yield dataset
    for one in dataset._inputs():
        yield from _upstream(one)


def _ops(graph: Any) -> Iterator[str]:
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            yield node.op
