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
from tensorflow.core.protobuf import service_config_pb2
from tensorflow.python.data.experimental.ops import data_service_ops
from tensorflow.python.eager import cancellation
from tensorflow.python.ops import script_ops

from unstall.pipeline.service.functions import function_name

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
    registry, builder, names = script_ops._py_funcs, threading.get_ident(), list[str]()

    def insert(function: Callable[..., Any]) -> str:
        if threading.get_ident() != builder:  # another pipeline, with TensorFlow's own names
            return str(original(function))
        name = function_name(getattr(function, "_func", function))
        names.append(name)
        token = f"unstall:{name}#{names.count(name)}"
        registry._funcs[token] = function
        return token

    with _naming:
        original = registry.insert
        registry.insert = insert
        try:
            yield names
        finally:
            registry.insert = original


def dispatcher_config(*, port: int, journal: str, timeout_ms: int, job_timeout_ms: int) -> Any:
    """Returns the settings of a dispatcher.

    It ends the jobs of clients that are gone, also those with splits. TensorFlow's public settings keep such jobs for
    ever, for clients that come back to a job by its name. Ours have no names.

    Args:
      journal: the folder of its journal; "" for none.
      timeout_ms: when a worker that is not heard of counts as lost, and how often it looks for that.
      job_timeout_ms: when the job of a client that is not heard of is ended.
    """
    return service_config_pb2.DispatcherConfig(
        port=port,
        protocol="grpc",
        work_dir=journal,
        fault_tolerant_mode=bool(journal),
        worker_timeout_ms=timeout_ms,
        job_gc_check_interval_ms=timeout_ms,
        job_gc_timeout_ms=job_timeout_ms,
        gc_dynamic_sharding_jobs=True,
    )


def port_of(server: Any) -> int:
    """Returns the port of a dispatcher or a worker of this process."""
    return int(server._address.rpartition(":")[2])


def is_missing_function(error: Exception) -> bool:
    """Whether an error says that a worker has no function of the name that a client's graph calls."""
    return "callback with key=unstall:" in str(error)


def distributed(dataset: tf.data.Dataset, target: str, *, sharding: str) -> tf.data.Dataset:
    """Returns what a service makes of a dataset, in a job of its own.

    Args:
      sharding: "dynamic": each element of the dataset's source goes to one worker. "off": each worker makes all.
    """
    return dataset.apply(
        data_service_ops._distribute(
            getattr(tf.data.experimental.service.ShardingPolicy, sharding.upper()),
            target,
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

    def __call__(self) -> tuple[Any, ...]:
        """Returns the parts of the next element; an element that is no tuple is one part.

        Raises:
          tf.errors.OutOfRangeError: behind the last.
          tf.errors.CancelledError: after `cancel`.
        """
        element = self._read(self._iterator)
        return tuple(element) if type(element) is tuple else (element,)

    def cancel(self) -> None:
        """Ends a read that waits, and all later ones."""
        self._cancellation.start_cancel()

    def close(self) -> None:
        """Closes the connections. No thread may read any more."""
        self._iterator = None
