"""Cuts a tf.data pipeline, so that a part of an epoch can be measured in the place of the whole epoch.

In proportion to its length, a part must cost what a whole epoch costs. So the pipeline is cut as near to its source as
possible, behind the first node from which on every element is traced to elements of that node. And shuffle buffers,
which are filled once an epoch, shrink with the part.

Nothing in this folder but `tf_data_rebuilt` imports TensorFlow at its top.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from unstall.profiles import clock
from unstall.profiles.measure import WARMUP_LIMIT_S
from unstall.profiles.stages import BATCHING, CutError, Node, batch_size_of, rebuilt, shuffle_buffer_of

# Transformations that yield one element for each input element, or for a fixed number of them.
_ONE_EACH = {"map", "shuffle", "prefetch", *BATCHING}
# Nodes that yield elements in almost no time. Filling a shuffle buffer takes no time where only such nodes precede it.
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
# Filling a shuffle buffer that holds a smaller part of the epoch than this is a negligible part of the epoch's time.
_SMALL_BUFFER_RATIO = 1 / 16
# How long the elements of a source of unknown length are counted.
_COUNT_S = 3.0


class EpochPart:
    """Cuts a pipeline, so that a number of batches stands for an epoch.

    Attributes:
      at: position of the node behind which the pipeline is cut. All nodes behind it yield one element for each input
        element, or batches.
      chain: positions of these nodes, in the order in which an element passes them.
      elements: elements of this node in an epoch of the user's; infinite if they have no end, or counting found none.
      length_known: False if counting the elements took too long.
      elements_per_batch: how many elements of this node make one batch of the pipeline.
      held_by: names the shuffle before the cut because of which no part can stand for an epoch; None if there is none.
      scales: whether the edges of a part are smaller than those of an epoch, in proportion to its length: they are
        where filling a shuffle buffer takes most of their time. Otherwise a part has the edges of a whole epoch.

    Args:
      pipeline: from `profiles.stages.nodes`.
      epoch_batches: of an epoch in the script, where tf.data does not know their number; they are counted unless given.
    Raises:
      CutError: if filling a cache of the pipeline takes too long.
    """

    def __init__(self, pipeline: list[Node], epoch_batches: int | None = None) -> None:
        self._pipeline = pipeline
        for node in pipeline:
            if node.kind in ("cache", "snapshot") and not node.inputs:
                _fill(node)
        self.at = len(pipeline) - 1
        while pipeline[self.at].kind in _ONE_EACH:
            (self.at,) = pipeline[self.at].inputs
        self.chain = range(self.at + 1, len(pipeline))
        self._shuffles = [at for at in self.chain if pipeline[at].kind == "shuffle"]
        self.elements_per_batch = self.batch_size_up_to(len(pipeline) - 1)
        known = None if epoch_batches is None else epoch_batches * self.elements_per_batch
        self.elements, self.length_known = _length(pipeline[self.at].dataset, known)
        self.scales = any(self._matters(at) for at in self._shuffles)
        held = any(pipeline[at].kind == "shuffle" and self._matters(at) for at in range(self.at))
        self.held_by = f"the shuffle in front of `{pipeline[self.at].name}`" if held else None

    @property
    def batches(self) -> float | None:
        """Of an epoch of the user's; None if it has no end, or its end was not found."""
        return None if math.isinf(self.elements) else self.elements / self.elements_per_batch

    def is_whole(self, batches: float) -> bool:
        """Whether a part of so many batches is a whole epoch, also because no smaller part can stand for one."""
        return self.held_by is not None or batches * self.elements_per_batch >= self.elements

    def behind(self, batches: float) -> dict[int, Callable[[Any], Any]]:
        """Returns what cuts the pipeline to so many batches, as `behind` of `profiles.stages.rebuilt`.

        Empty for a whole epoch.
        """
        if self.is_whole(batches):
            return {}
        elements = int(batches) * self.elements_per_batch
        return {self.at: lambda dataset: dataset.take(elements)}

    def buffers(self, batches: float) -> dict[int, int]:
        """Returns the sizes of shuffle buffers for so many batches, as `buffers` of `profiles.stages.rebuilt`.

        Each buffer holds as large a part of the cut epoch as it does of the user's epoch. A buffer of the user's size
        would read all of a cut epoch before the first batch, so that no loading could overlap with training.
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

    def up_to(self, at: int, batches: float) -> Any:
        """Returns the data up to a node, of the elements of so many batches, in an order that comes again."""
        shuffles = (number for number, node in enumerate(self._pipeline) if node.kind == "shuffle")
        buffers = {number: shuffle_buffer_of(self._pipeline[number].dataset) for number in shuffles}
        buffers |= self.buffers(batches)
        return rebuilt(self._pipeline, calls="as written", behind=self.behind(batches), buffers=buffers)[at]

    def batch_size_up_to(self, at: int) -> int:
        """Returns how many elements of the node where the pipeline is cut make one of another node behind it."""
        batches = [before for before in self.chain if before <= at and self._pipeline[before].kind in BATCHING]
        return math.prod(batch_size_of(self._pipeline[before].dataset) for before in batches)

    def has_several(self, at: int) -> bool:
        """Whether an epoch has more than one element at a node: what makes the plan of an epoch at once has one."""
        return int(self._pipeline[at].dataset.cardinality()) != 1

    def images(self, images_per_batch: int) -> float:
        """Returns the number of images in an epoch of the user's; infinite where `elements` is."""
        return self.elements * images_per_batch / self.elements_per_batch

    def _elements_behind(self, at: int) -> float:
        elements = int(self._pipeline[at].dataset.cardinality())
        return elements if elements >= 0 else self.elements

    def _matters(self, at: int) -> bool:
        """Whether filling a shuffle's buffer takes much of an epoch's time."""
        if math.isinf(self.elements):
            return False
        size, elements = shuffle_buffer_of(self._pipeline[at].dataset), self._elements_behind(at)
        takes_time = any(self._pipeline[before].kind not in _AT_ONCE for before in self._in_front(at))
        return takes_time and (size < 0 or size >= _SMALL_BUFFER_RATIO * elements)

    def _in_front(self, at: int) -> set[int]:
        """Returns the positions of all nodes that a node reads, also through others."""
        inputs = self._pipeline[at].inputs
        return set(inputs).union(*(self._in_front(before) for before in inputs))


def _fill(node: Node) -> None:
    """Reads a cache to its end. Epochs are timed with full caches, and tf.data drops a cache that is read in part.

    Raises:
      CutError: if filling the cache takes longer than `WARMUP_LIMIT_S`.
    """
    if _read(node.dataset, WARMUP_LIMIT_S) is None:
        raise CutError(f"its {node.kind} was not full after {WARMUP_LIMIT_S:.0f} s")


def _length(dataset: Any, known: int | None) -> tuple[float, bool]:
    """Returns (elements of a dataset, whether their number is known).

    Where tf.data does not know it, it is `known`, or they are counted.
    """
    import tensorflow as tf

    elements = int(dataset.cardinality())
    if elements == tf.data.INFINITE_CARDINALITY:
        return math.inf, True
    if elements >= 0:
        return elements, True
    counted = _read(dataset, _COUNT_S) if known is None else known
    return (math.inf, False) if counted is None else (counted, True)


def _read(dataset: Any, limit_s: float) -> int | None:
    """Reads a dataset to its end and returns the number of its elements; None if that takes longer than `limit_s`."""
    until_ns = clock.now_ns() + int(limit_s * 1e9)
    elements = 0
    for _ in dataset:
        if clock.now_ns() > until_ns:
            return None
        elements += 1
    return elements
