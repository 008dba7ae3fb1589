"""Reads from the graph of a tf.data pipeline how far it works ahead of the model."""

from __future__ import annotations

import math
import os
from typing import Any

import keras

from unstall.profiles.measure.ahead import Ahead
from unstall.profiles.stages.tf_graph import BATCHING, Node, batch_size_of, nodes, shuffle_buffer_of

# Transformations that make no element: what a shuffle behind these alone holds has cost nothing.
_WITHOUT_WORK = {
    "assert_cardinality",
    "concatenate",
    "enumerate",
    "from_tensor_slices",
    "from_tensors",
    "list_files",
    "prefetch",
    "range",
    "repeat",
    "shard",
    "shuffle",
    "skip",
    "take",
    "zip",
}
# Transformations of which one element can give any number of elements: nobody knows how many batches lie before them.
_WITHOUT_RATIO = {"flat_map", "interleave", "unbatch", "group_by_window", "scan", "window"}
# AUTOTUNE seldom makes a buffer larger than this, for each core.
_AUTOTUNED_BUFFER = 2


def ahead_of(data: Any) -> Ahead:
    """Returns how far a tf.data pipeline works ahead of the model, by its graph.

    What AUTOTUNE chooses is taken for the most that it may choose.

    Args:
      data: a pipeline of batches, whose caches are full.
    Raises:
      CutError: if TensorFlow lacks a private name that reading a pipeline needs.
    """
    pipeline = nodes(data, needs="telling how far a pipeline works ahead needs")
    per_batch = _elements_per_batch(pipeline)
    whole = parts = buffered = shuffled = 0.0
    for at, elements in per_batch.items():
        calls, buffer = _calls_and_buffer(pipeline[at])
        if elements == 1:
            whole += calls
        else:
            parts += calls / elements
        buffered += (calls + buffer) / elements
        if pipeline[at].kind == "shuffle" and _holds_work(pipeline, at):
            shuffled += _shuffled(pipeline[at]) / elements
    return Ahead(
        # Single images that are made at the same time belong to the batch that is next, and to those behind it.
        parallel_batches=max(1, math.ceil(whole)) + math.ceil(parts),
        buffered_batches=math.ceil(buffered),
        shuffled_batches=math.ceil(shuffled),
    )


def _elements_per_batch(pipeline: list[Node]) -> dict[int, int]:
    """Returns, by position in the pipeline, how many elements of a node go into one batch, where that is known."""
    per_batch = {len(pipeline) - 1: 1}
    for at in range(len(pipeline) - 1, -1, -1):
        node = pipeline[at]
        if at not in per_batch or node.kind in _WITHOUT_RATIO:
            continue
        ratio = batch_size_of(node.dataset) if node.kind in BATCHING else 1
        for below in node.inputs:
            per_batch[below] = max(per_batch.get(below, 0), per_batch[at] * ratio)
    return per_batch


def _calls_and_buffer(node: Node) -> tuple[int, int]:
    """Returns (parallel calls, each of which holds an element; elements in the buffer of a prefetch)."""
    from unstall.profiles.stages.tf_model import written

    calls, buffer, autotuned = written(node.dataset)
    if node.kind == "prefetch":
        return 0, _AUTOTUNED_BUFFER * _cores() if autotuned else buffer or 0
    if calls is None and autotuned:
        calls = _cores()
    return calls or 0, 0


def _holds_work(pipeline: list[Node], at: int) -> bool:
    """Whether the elements that a shuffle holds are arrays that the pipeline has made, not names of files."""
    specs = keras.tree.flatten(pipeline[at].dataset.element_spec)
    if all(getattr(spec, "shape", None) is not None and spec.shape.rank == 0 for spec in specs):
        return False
    waiting = list(pipeline[at].inputs)
    while waiting:
        node = pipeline[waiting.pop()]
        if node.kind not in _WITHOUT_WORK:
            return True
        waiting += node.inputs
    return False


def _shuffled(node: Node) -> int:
    """Returns how many elements a shuffle holds: no more than there are, where that is known."""
    buffer, elements = shuffle_buffer_of(node.dataset), int(node.dataset.cardinality())
    if buffer < 0:
        return max(elements, 1)
    return min(buffer, elements) if elements > 0 else buffer


def _cores() -> int:
    """Returns how many calls AUTOTUNE may choose: as many as CPUs in the affinity, whatever a quota says."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
