"""What tf.data knows of a pipeline that runs: elements, bytes, and the parallelism and buffers that AUTOTUNE chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from profiles.stages.tf_graph import Node

# tf.data's names of what a user's transformation becomes; its own are those without the version at the end.
_FUSED = ("MapAndBatch", "ParallelMapAndBatch")
# What tf.data leaves out where it does nothing, and what a serial pipeline has not.
_MAY_VANISH = {"prefetch", "copy_to_device", "take", "skip", "repeat", "shard", "restructured"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One node of a running pipeline at one moment. Counts are since the iterator was made.

    Attributes:
      parallelism, buffer_size: in force; None where the node has none.
      tunable: whether AUTOTUNE chose them.
    """

    elements: int
    bytes_produced: int
    buffered: int
    parallelism: int | None
    buffer_size: int | None
    tunable: bool


def look(iterator: Any, pipeline: Sequence[Node]) -> dict[int, Seen] | None:
    """Looks at a running pipeline's nodes, by their position in `pipeline`.

    A node that tf.data has fused with another is seen as that one; one that it has dropped is absent.

    Returns:
      None where tf.data keeps no model of the pipeline: its autotuning is off, or the iterator is not its own.
    Source: `tf.data.experimental.get_model_proto`.
    """
    try:
        model = tf.data.experimental.get_model_proto(iterator)
    except (tf.errors.NotFoundError, ValueError, AttributeError, TypeError):
        return None
    found: dict[int, Seen] = {}

    def align(position: int, at: int) -> None:
        matched = _match(pipeline, position, model.nodes, at)
        if matched is None:
            return
        position, at = matched
        found[position] = _seen(model.nodes[at])
        if model.nodes[at].name.startswith(_FUSED):
            (position,) = pipeline[position].inputs
            found[position] = _seen(model.nodes[at])
        # A node such as flat_map reads the datasets that its function returns as well.
        left = list(model.nodes[at].inputs)
        for below in pipeline[position].inputs:
            of_model = next((one for one in left if _match(pipeline, below, model.nodes, one)), None)
            if of_model is not None:
                left.remove(of_model)
                align(below, of_model)

    align(len(pipeline) - 1, model.output)
    return found


def _match(pipeline: Sequence[Node], position: int, of_model: Any, at: int) -> tuple[int, int] | None:
    """Returns the first pair that belongs together, past what tf.data put in and what it took out."""
    while True:
        here = position
        while True:
            if _fits(pipeline[here], of_model[at].name):
                return here, at
            if pipeline[here].kind not in _MAY_VANISH:
                break
            (here,) = pipeline[here].inputs
        if len(of_model[at].inputs) != 1:
            return None
        at = of_model[at].inputs[0]


def _fits(node: Node, name: str) -> bool:
    if name.startswith(_FUSED):
        return node.kind == "batch"
    plain = name
    for word in ("Parallel", "Memory", "File", "Forever", "Finite"):
        plain = plain.removeprefix(word)
    plain = plain.lower()
    kind = {"from_tensor_slices": "tensorslice", "from_tensors": "tensor"}.get(node.kind, node.kind.replace("_", ""))
    return plain == kind or (plain.startswith(kind) and plain.removeprefix(kind).strip("v0123456789impl") == "")


def _seen(node: Any) -> Seen:
    parameters = {one.name: one for one in node.parameters}
    parallelism, buffer_size = parameters.get("parallelism"), parameters.get("buffer_size")
    return Seen(
        elements=node.num_elements,
        bytes_produced=node.bytes_produced,
        buffered=node.buffered_elements,
        parallelism=None if parallelism is None else int(parallelism.state_value),
        buffer_size=None if buffer_size is None else int(buffer_size.state_value),
        tunable=any(one is not None and one.tunable for one in (parallelism, buffer_size)),
    )


def written(dataset: Any) -> tuple[int | None, int | None, bool]:
    """Returns a node's parallelism and buffer size as the user wrote them, and whether AUTOTUNE is to choose.

    None where it has none, or where AUTOTUNE chooses.
    """
    values = []
    for name in ("_num_parallel_calls", "_buffer_size"):
        value = getattr(dataset, name, None)
        values.append(None if value is None else int(value))
    parallelism, buffer_size = (None if value == tf.data.AUTOTUNE else value for value in values)
    return parallelism, buffer_size, tf.data.AUTOTUNE in values
