"""Times how long TensorFlow traces functions, so that a loop whose steps trace again and again can be told so."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unstall.profiles import clock

# Keras' own functions around a model's step.
_OF_KERAS = ("one_step_on_data", "multi_step_on_iterator")


@dataclass(slots=True)
class Traces:
    """What a thread has traced so far.

    Attributes:
      count, ns: functions that were traced, and how long that took; one inside another is a part of it.
      name: of the last function.
      depth: how many functions the thread is tracing.
    """

    count: int = 0
    ns: int = 0
    name: str = ""
    depth: int = 0


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.traces = Traces()


_of_thread = _PerThread()


def traced_here() -> Traces:
    """Returns what this thread has traced since TensorFlow was attached to."""
    return _of_thread.traces


def attach() -> Callable[[], None]:
    """Times each trace of a `tf.function` from now on, and returns what ends that; nothing in an unknown TensorFlow."""
    try:
        from tensorflow.python.framework import func_graph as owner

        original = owner.func_graph_from_py_func
    except (ImportError, AttributeError):
        return lambda: None

    @functools.wraps(original)
    def func_graph_from_py_func(name: Any, *arguments: Any, **options: Any) -> Any:
        traces, began_ns = _of_thread.traces, clock.now_ns()
        traces.depth += 1
        try:
            return original(name, *arguments, **options)
        finally:
            traces.depth -= 1
            if not traces.depth:
                traces.count += 1
                traces.ns += clock.now_ns() - began_ns
                traces.name = "the model's step" if name in _OF_KERAS else str(name)

    owner.func_graph_from_py_func = func_graph_from_py_func
    return lambda: setattr(owner, "func_graph_from_py_func", original)
