"""Whether the Python code of a tf.data pipeline draws random numbers: its first elements are made twice."""

from __future__ import annotations

from typing import Any

from unstall.profiles import clock
from unstall.profiles.remedies.equality import compare
from unstall.profiles.remedies.tf.tf_part import EpochPart
from unstall.profiles.stages import Node

# So many elements of Python code are made twice, for so long each time.
_PROBED, _PROBED_NS = 64, 1_000_000_000


class MadeAgain:
    """Makes the first elements of nodes twice, and remembers which were the same.

    Args:
      pipeline: the nodes.
      part: how it is cut.

    Attributes:
      same: how many elements were made and were the same, by the name of the node.
    """

    def __init__(self, pipeline: list[Node], part: EpochPart) -> None:
        self.same: dict[str, int] = {}
        self._nodes = pipeline
        self._part = part
        self._known: dict[int, bool] = {}

    def is_same(self, at: int) -> bool:
        """Whether the first elements of a node are the same when they are made again."""
        if at not in self._known:
            self._known[at] = self._made_twice(at)
        return self._known[at]

    def _made_twice(self, at: int) -> bool:
        readings: list[list[Any]] = []
        for _ in range(2):
            until_ns = clock.now_ns() + _PROBED_NS
            readings.append([])
            for element in self._part.up_to(at, _PROBED).take(_PROBED):
                readings[-1].append(as_arrays(element))
                if clock.now_ns() > until_ns:
                    break
        count = min(map(len, readings))
        if compare(readings[0][:count], readings[1][:count]).effect != "identical":
            return False
        self.same[self._nodes[at].name] = count
        return True


def as_arrays(element: Any) -> Any:
    """Returns an element or a batch of tf.data's with NumPy's arrays instead of tensors."""
    import tensorflow as tf

    return tf.nest.map_structure(
        lambda part: part.numpy() if hasattr(part, "numpy") else part, element, expand_composites=True
    )
