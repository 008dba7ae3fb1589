"""A user's own tf.data function through a service: workers that have built the same pipeline make its elements."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from unstall.pipeline.address import parse_address
from unstall.pipeline.errors import ConfigError, UnavailableError
from unstall.pipeline.service.handshake import ask_workers, check_reachable, check_same
from unstall.pipeline.service.stream import Stream
from unstall.pipeline.service.tf_private import distributed, named_functions

SHARDING = ("dynamic", "off")
_PATIENCE_S = 30.0


def from_service(
    make_dataset: Callable[[], tf.data.Dataset],
    service: str,
    *,
    sharding: str = "dynamic",
    patience_s: float = _PATIENCE_S,
) -> tf.data.Dataset:
    """Returns the elements of a user's pipeline as the workers of a service make them; each iterator is a new job.

    Start the workers by `unstall service worker --dispatcher HOST:PORT --pipeline MODULE:FUNCTION`. Python functions of
    the pipeline run there; they must be the same as here. A worker that is lost takes its elements with it: the epoch
    then ends after `patience_s`, with a warning.

    Args:
      make_dataset: the function; builds the pipeline anew at each call.
      service: HOST:PORT of the dispatcher.
      sharding: "dynamic": each element of the source, such as a path, goes to one worker, so that batches are of the
        elements of one worker. "off": each worker makes all elements.
      patience_s: how long an element may take to come.
    Raises:
      ConfigError: if an argument is wrong.
      UnavailableError: if nothing answers there, or a worker has another pipeline.
    """
    address = parse_address(service)
    if address is None or address.workers:
        raise ConfigError(f"`service` must be HOST:PORT of a dispatcher. Received: service={service!r}.")
    if sharding not in SHARDING:
        raise ConfigError(f"`sharding` must be one of {', '.join(SHARDING)}. Received: sharding={sharding!r}.")
    check_reachable(address)
    with named_functions() as functions:
        dataset = make_dataset()
    workers = ask_workers(address.target)
    if not workers:
        raise UnavailableError(f"the dispatcher at {address.text} has no workers")
    check_same(workers, functions, address.text)

    def elements() -> Iterator[Any]:
        check_reachable(address)
        came = 0
        stream = Stream(lambda: distributed(dataset, address.target, sharding=sharding), lambda *element: element)
        try:
            while (element := stream.next(wait_ns=int(patience_s * 1e9))) is not None:
                came += 1
                yield element[0] if one_part else element
        except tf.errors.OutOfRangeError:
            return
        finally:
            stream.close()
        silent = f"from the workers of {address.text} for {patience_s:g} s"
        if not came:
            raise UnavailableError(f"nothing came {silent}")
        warnings.warn(
            f"after {came} elements nothing came {silent}: a worker was lost, and what it had is missing in the epoch.",
            stacklevel=2,
        )

    one_part = type(dataset.element_spec) is not tuple
    return tf.data.Dataset.from_generator(elements, output_signature=dataset.element_spec).prefetch(2)
