"""The handshake: asks each worker for its facts, and checks that it serves the pipeline that a client asks for."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from unstall.pipeline.address import Address
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.service.account import WorkerFacts, read_facts
from unstall.pipeline.service.stream import Stream
from unstall.pipeline.service.tf_private import distributed, named_functions

_CONNECT_TIMEOUT_S = 5.0
# How long the first answer may take, and each further one.
_FIRST_ANSWER_NS, _NEXT_ANSWER_NS = 10_000_000_000, 1_000_000_000


def check_reachable(address: Address) -> None:
    """Connects to a dispatcher once. TensorFlow's client would try for an hour.

    Raises:
      UnavailableError: if nothing answers.
    """
    try:
        socket.create_connection((address.host, address.port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise UnavailableError(
            f"no dispatcher answers at {address.text} ({error.strerror or error}): start one there with "
            f"`unstall service dispatcher --port {address.port}`"
        ) from error


class _About:
    """The function that answers with a worker's facts. Its name is the same in every process and version."""

    service_digest = "1"

    def __init__(self, text: bytes = b"") -> None:
        self._text = text

    def __call__(self, _: Any) -> bytes:
        return self._text


def answering(facts: WorkerFacts | None = None) -> tf.data.Dataset:
    """Returns a dataset of one element: the facts of the worker that runs it. A worker must keep it."""
    about: Callable[..., bytes] = _About(facts.text() if facts else b"")
    with named_functions():
        return tf.data.Dataset.range(1).map(
            lambda number: tf.ensure_shape(tf.numpy_function(about, [number], tf.string, stateful=False), ())
        )


def ask_workers(target: str) -> tuple[WorkerFacts, ...]:
    """Returns the facts of the workers that answer, in the order of their names.

    A worker that was lost a moment ago is still registered, and TensorFlow's client would wait for its answer for ever.
    """
    stream = Stream(lambda: distributed(answering(), target, sharding="off"), lambda text: read_facts(text.numpy()))
    workers: dict[str, WorkerFacts] = {}
    wait_ns = _FIRST_ANSWER_NS
    try:
        while facts := stream.next(wait_ns=wait_ns):
            workers[facts.worker] = facts
            wait_ns = _NEXT_ANSWER_NS
    except tf.errors.OutOfRangeError:
        pass
    finally:
        stream.close()
    return tuple(workers[name] for name in sorted(workers))


def check_same(
    workers: tuple[WorkerFacts, ...], functions: list[str], where: str, parts: Mapping[str, str] | None = None
) -> None:
    """Checks that every worker makes what a client asks for.

    Args:
      functions: the names of the Python functions of the client's pipeline.
      where: the dispatcher.
      parts: of our own pipelines, what the client's batches depend on.
    Raises:
      UnavailableError: if a worker has another pipeline; the message names it and what differs.
    """
    for facts in workers:
        missing = [name for name in functions if name not in facts.functions]
        others = [
            f"{name} {facts.parts.get(name, 'missing')}, here {text}"
            for name, text in (parts or {}).items()
            if facts.parts.get(name) != text
        ]
        if missing or others:
            name, _, digest = missing[0].rpartition(":") if missing else ("", "", "")
            theirs = [other.rpartition(":")[2] for other in facts.functions if other.rpartition(":")[0] == name]
            what = f"its {name} is another ({', '.join(theirs)}, here {digest})" if theirs else f"it has no {name}"
            raise UnavailableError(
                f"worker {facts.worker} of {where} serves another pipeline: "
                + (f"it has {'; '.join(others)}" if others and facts.parts else what)
            )
