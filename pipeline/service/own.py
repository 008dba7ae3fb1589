"""A user's own tf.data function through a service: workers that have built the same pipeline make its elements."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from pipeline.address import parse_address
from pipeline.errors import ConfigError, UnavailableError
from pipeline.service.handshake import ask_workers, check_reachable, check_same
from pipeline.service.stream import Stream
from pipeline.service.tf_private import distributed, named_functions

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
    the pipeline run there; they must be the same as here. A worker that is lost takes its elements with it: that is
    warned of at the end of the epoch, where the number of elements is certain.

    Args:
      make_dataset: the function; builds the pipeline anew at each call.
      service: HOST:PORT of the dispatcher.
      sharding: "dynamic": each element of the source, such as a path, goes to one worker, so that batches are of the
        elements of one worker. "off": each worker makes all elements.
      patience_s: how long an element may take to come. After that an epoch ends, or fails if none has come.
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
    expected = int(dataset.cardinality()) * (len(workers) if sharding == "off" else 1)

    def elements() -> Iterator[Any]:
        came = 0
        stream = Stream(distributed(dataset, address.target, sharding=sharding), lambda *element: element)
        try:
            while True:
                element = stream.next(wait_ns=int(patience_s * 1e9))
                if element is None:
                    break
                came += 1
                yield element if len(element) > 1 else element[0]
        except tf.errors.OutOfRangeError:
            pass
        finally:
            stream.close()
        if not came:
            raise UnavailableError(f"nothing came from the workers of {address.text} for {patience_s:g} s")
        if came < expected:
            warnings.warn(
                f"{expected - came} of {expected} elements did not come from the workers of {address.text} in this "
                "epoch: a worker was lost, or took longer than `patience_s`.",
                stacklevel=2,
            )

    return tf.data.Dataset.from_generator(elements, output_signature=dataset.element_spec).prefetch(2)
