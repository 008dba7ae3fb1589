"""Observes a running tf.data pipeline: elements, bytes, and the parallelism and buffers that AUTOTUNE chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from unstall.profiles.stages.tf_graph import Node

# Names of the nodes that tf.data makes of a map and a batch behind it.
_FUSED = ("MapAndBatch", "ParallelMapAndBatch")
# Transformations that tf.data drops where they have no effect, and those that a serial pipeline lacks.
_MAY_VANISH = {"prefetch", "copy_to_device", "take", "skip", "repeat", "shard", "restructured"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node of a running pipeline at one moment.

    Attributes:
      elements, bytes_produced: that the node has yielded since the iterator was made.
      buffered: elements in its buffer.
      parallelism, buffer_size: at this moment; None where the node has none.
      tunable: whether AUTOTUNE chooses one of them.
    """

    elements: int
    bytes_produced: int
    buffered: int
    parallelism: int | None
    buffer_size: int | None
    tunable: bool


def look(iterator: Any, pipeline: Sequence[Node]) -> dict[int, NodeState] | None:
    """Observes the nodes of a running pipeline.

    Args:
      iterator: over the pipeline.
      pipeline: the nodes of the pipeline.
    Returns:
      What was observed, by position in `pipeline`. Two nodes that tf.data has fused into one have the same values; a
      node that tf.data has dropped is absent. None where tf.data keeps no model of the pipeline, because autotuning is
      off or the iterator is not tf.data's.
    Source: `tf.data.experimental.get_model_proto`.
    """
    try:
        model = tf.data.experimental.get_model_proto(iterator)
    except (tf.errors.NotFoundError, ValueError, AttributeError, TypeError):
        return None
    observed: dict[int, NodeState] = {}

    def align(position: int, at: int) -> None:
        match = _match(pipeline, position, model.nodes, at)
        if match is None:
            return
        position, at = match
        observed[position] = _state_of(model.nodes[at])
        if model.nodes[at].name.startswith(_FUSED):
            (position,) = pipeline[position].inputs
            observed[position] = _state_of(model.nodes[at])
        # In the model a node such as flat_map also has the datasets that its function returned as inputs.
        left = list(model.nodes[at].inputs)
        for below in pipeline[position].inputs:
            model_input = next((index for index in left if _match(pipeline, below, model.nodes, index)), None)
            if model_input is not None:
                left.remove(model_input)
                align(below, model_input)

    align(len(pipeline) - 1, model.output)
    return observed


def _match(pipeline: Sequence[Node], position: int, model_nodes: Any, at: int) -> tuple[int, int] | None:
    """Returns the first (position in the pipeline, index in the model) upstream of these two that belong together.

    Skips nodes that tf.data has added to the model, and nodes of the pipeline that it has dropped.
    """
    while True:
        candidate = position
        while True:
            if _fits(pipeline[candidate], model_nodes[at].name):
                return candidate, at
            if pipeline[candidate].kind not in _MAY_VANISH:
                break
            (candidate,) = pipeline[candidate].inputs
        if len(model_nodes[at].inputs) != 1:
            return None
        at = model_nodes[at].inputs[0]


def _fits(node: Node, name: str) -> bool:
    if name.startswith(_FUSED):
        return node.kind == "batch"
    plain = name
    for word in ("Parallel", "Memory", "File", "Forever", "Finite"):
        plain = plain.removeprefix(word)
    plain = plain.lower()
    kind = {"from_tensor_slices": "tensorslice", "from_tensors": "tensor"}.get(node.kind, node.kind.replace("_", ""))
    return plain == kind or (plain.startswith(kind) and plain.removeprefix(kind).strip("v0123456789impl") == "")


def _state_of(node: Any) -> NodeState:
    parameters = {parameter.name: parameter for parameter in node.parameters}
    parallelism, buffer_size = parameters.get("parallelism"), parameters.get("buffer_size")
    return NodeState(
        elements=node.num_elements,
        bytes_produced=node.bytes_produced,
        buffered=node.buffered_elements,
        parallelism=None if parallelism is None else int(parallelism.state_value),
        buffer_size=None if buffer_size is None else int(buffer_size.state_value),
        tunable=any(parameter is not None and parameter.tunable for parameter in (parallelism, buffer_size)),
    )


def written(dataset: Any) -> tuple[int | None, int | None, bool]:
    """Returns a node's (parallelism, buffer size, whether AUTOTUNE chooses one of them) as the user wrote them.

    None stands for a value that the node has not, or that AUTOTUNE chooses.
    """
    values = []
    for name in ("_num_parallel_calls", "_buffer_size"):
        value = getattr(dataset, name, None)
        values.append(None if value is None else int(value))
    parallelism, buffer_size = (None if value == tf.data.AUTOTUNE else value for value in values)
    return parallelism, buffer_size, tf.data.AUTOTUNE in values
