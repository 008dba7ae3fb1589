"""All of TensorFlow's private names that the service needs, as of TensorFlow 2.21.

The registry of Python functions, to name them by what they are; the client's interval between two questions for tasks;
and the way to end a read that waits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.data.experimental.ops import data_service_ops
from tensorflow.python.eager import cancellation
from tensorflow.python.ops import script_ops

from pipeline.service.functions import function_name

# How often a client asks the dispatcher for new tasks and ended ones. By TensorFlow's own choice an epoch ended 0.4 to
# 0.9 s after its last element had come, and a worker that is added waited as long.
_TASK_REFRESH_MS = 20
# Without compression: pixels hardly get smaller, and with it workers spent 1.3 times the CPU time on a megabyte, the
# client 1.4 times.
_COMPRESSION = None

_naming = threading.RLock()


@contextlib.contextmanager
def named_functions() -> Iterator[list[str]]:
    """Registers the Python functions of the pipelines that this thread builds meanwhile by their names and digests.

    Yields:
      The names, in the order of their registration. The same function a second time gets a number.
    """
    # A thread that builds another pipeline meanwhile gets TensorFlow's own names.
    registry, builder, names = script_ops._py_funcs, threading.get_ident(), []
    original = registry.insert

    def insert(function: Callable[..., Any]) -> str:
        if threading.get_ident() != builder:
            return str(original(function))
        name = function_name(getattr(function, "_func", function))
        names.append(name)
        token = f"unstall:{name}#{names.count(name)}"
        registry._funcs[token] = function
        return token

    with _naming:
        registry.insert = insert
        try:
            yield names
        finally:
            del registry.insert


def is_missing_function(error: Exception) -> bool:
    """Whether an error says that a worker has no function of the name that a client's graph calls."""
    return "callback with key=unstall:" in str(error)


def distributed(
    dataset: tf.data.Dataset, target: str, *, sharding: str, outstanding: int | None = None
) -> tf.data.Dataset:
    """Returns what a service makes of a dataset, in a job of its own.

    Args:
      sharding: "dynamic": each element of the dataset's source goes to one worker. "off": each worker makes all.
      outstanding: how many elements may be asked for at the same time; None for TensorFlow's choice.
    """
    return dataset.apply(
        data_service_ops._distribute(
            getattr(tf.data.experimental.service.ShardingPolicy, sharding.upper()),
            target,
            max_outstanding_requests=outstanding,
            task_refresh_interval_hint_ms=_TASK_REFRESH_MS,
            compression=_COMPRESSION,
        )
    )


class Reader:
    """Reads a dataset's elements, one by one; another thread can end a read that waits."""

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._iterator: Any = iter(dataset)
        self._cancellation = cancellation.CancellationManager()
        # The iterator is an argument: a function that holds it would keep its connections open until garbage is
        # collected, and a dispatcher waits five seconds for these before it ends.
        read = tf.function(lambda iterator: iterator.get_next()).get_concrete_function(self._iterator)
        self._read = self._cancellation.get_cancelable_function(read)

    def __call__(self) -> Any:
        """Returns the next element.

        Raises:
          tf.errors.OutOfRangeError: behind the last.
          tf.errors.CancelledError: after `cancel`.
        """
        return self._read(self._iterator)

    def cancel(self) -> None:
        """Ends a read that waits, and all later ones."""
        self._cancellation.start_cancel()

    def close(self) -> None:
        """Closes the connections. No thread may read any more."""
        self._iterator = None
