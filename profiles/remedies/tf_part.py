"""A part of a pipeline's epoch: where all pipelines that are built from it are cut, and what stands for what.

A part must cost what a whole epoch costs, in proportion. So it is cut as near to the source as elements can be counted
one for one, and what an epoch does once, such as filling a shuffle buffer, is made smaller with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from profiles import clock
from profiles.measure import WARMUP_LIMIT_S
from profiles.stages import CutError, Node, batch_size_of, shuffle_buffer_of

# Transformations that give an element for an element, or put some together.
_ONE_EACH = {"map", "shuffle", "batch", "prefetch"}
# What makes elements in no time: a shuffle behind these alone is full at once.
_AT_ONCE = {
    "range",
    "from_tensors",
    "from_tensor_slices",
    "list_files",
    "cache",
    "zip",
    "take",
    "skip",
    "shard",
    "shuffle",
    "prefetch",
}
# A shuffle buffer that holds a smaller part of the epoch than this does not matter to the epoch's time.
_SMALL_BUFFER_RATIO = 1 / 16
# Elements of a source that does not know its length are counted for so long.
_COUNT_S = 3.0


class EpochPart:
    """Cuts a pipeline so that some of its batches stand for an epoch.

    Attributes:
      at: position of the node behind which it is cut: all that follow give an element for each, or a batch of some.
      elements: that this node gives in an epoch of the user's; infinite where it has no end, or none was found.
      length_known: False where none was found, in the time that counting may take.
      elements_per_batch: of that node's, in one batch of the pipeline.
      held_by: the shuffle in front of the cut that keeps a part from standing for an epoch, in words; None without.
      scales: whether a part is the epoch on a smaller scale with its edges, since filling a shuffle buffer is most of
        them. Otherwise a part has the edges of a whole epoch.

    Args:
      pipeline: from `profiles.stages.nodes`.
    Raises:
      CutError: if a cache in it cannot be filled.
    """

    def __init__(self, pipeline: list[Node]) -> None:
        self._pipeline = pipeline
        for node in pipeline:
            if node.kind in ("cache", "snapshot") and not node.inputs:
                _fill(node)
        self.at = len(pipeline) - 1
        while pipeline[self.at].kind in _ONE_EACH:
            (self.at,) = pipeline[self.at].inputs
        behind = range(self.at + 1, len(pipeline))
        self._shuffles = [at for at in behind if pipeline[at].kind == "shuffle"]
        batch_sizes = [batch_size_of(pipeline[at].dataset) for at in behind if pipeline[at].kind == "batch"]
        self.elements_per_batch = math.prod(batch_sizes)
        self.elements, self.length_known = _length(pipeline[self.at].dataset)
        self.scales = any(self._matters(at) for at in self._shuffles)
        held = [at for at in range(self.at) if pipeline[at].kind == "shuffle" and self._matters(at)]
        self.held_by = f"the shuffle in front of `{pipeline[self.at].name}`" if held else None

    def is_whole(self, batches: int) -> bool:
        """Whether so many batches are all of an epoch."""
        return self.held_by is not None or batches * self.elements_per_batch >= self.elements

    def behind(self, batches: int) -> dict[int, Callable[[Any], Any]]:
        """Returns what cuts the pipeline to so many batches, for `profiles.stages.rebuilt`; nothing of an epoch."""
        elements = batches * self.elements_per_batch
        return {} if self.is_whole(batches) else {self.at: lambda dataset: dataset.take(elements)}

    def buffers(self, batches: int) -> dict[int, int]:
        """Returns the sizes of shuffle buffers for so many batches, for `profiles.stages.rebuilt`.

        Each buffer holds as large a part of the cut epoch as it does of the user's epoch. A buffer of the user's size
        would take in all of a cut epoch before the first batch, and nothing could be done beside training any more.
        """
        if self.is_whole(batches):
            return {}
        ratio = batches * self.elements_per_batch / self.elements
        sizes = {at: shuffle_buffer_of(self._pipeline[at].dataset) for at in self._shuffles}
        return {
            at: max(1, math.ceil(min(size, self._elements_behind(at)) * ratio)) if ratio else 1
            for at, size in sizes.items()
            if size > 0
        }

    def images(self, images_per_batch: int) -> float:
        """Returns the images of an epoch of the user's, infinite where `elements` are."""
        return self.elements * images_per_batch / self.elements_per_batch

    def _elements_behind(self, at: int) -> float:
        elements = int(self._pipeline[at].dataset.cardinality())
        return elements if elements >= 0 else self.elements

    def _matters(self, at: int) -> bool:
        """Whether filling a shuffle's buffer is much of an epoch's time."""
        if math.isinf(self.elements):
            return False
        size, elements = shuffle_buffer_of(self._pipeline[at].dataset), self._elements_behind(at)
        takes_time = any(self._pipeline[one].kind not in _AT_ONCE for one in self._in_front(at))
        return takes_time and (size < 0 or size >= _SMALL_BUFFER_RATIO * elements)

    def _in_front(self, at: int) -> set[int]:
        below = self._pipeline[at].inputs
        return set(below).union(*(self._in_front(one) for one in below))


def _fill(node: Node) -> None:
    """Reads a cache of the user's once: an epoch is timed with full caches, and one that is left early is thrown away.

    Raises:
      CutError: if that takes too long.
    """
    if _read(node.dataset, WARMUP_LIMIT_S) is None:
        raise CutError(f"its {node.kind} was not full after {WARMUP_LIMIT_S:.0f} s")


def _length(dataset: Any) -> tuple[float, bool]:
    """Returns the elements of a dataset, and whether they are known."""
    elements = int(dataset.cardinality())
    if elements == tf.data.INFINITE_CARDINALITY:
        return math.inf, True
    if elements >= 0:
        return elements, True
    counted = _read(dataset, _COUNT_S)
    return (math.inf, False) if counted is None else (counted, True)


def _read(dataset: Any, limit_s: float) -> int | None:
    """Reads a dataset to its end and returns its elements; None if there was no end in time."""
    until_ns = clock.now_ns() + int(limit_s * 1e9)
    elements = 0
    for _ in dataset:
        if clock.now_ns() > until_ns:
            return None
        elements += 1
    return elements
