"""What the maps and interleaves of a tf.data pipeline cost: which wait, and which take time that is worth changing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unstall.profiles import clock
from unstall.profiles.remedies.tf.tf_part import EpochPart
from unstall.profiles.stages import Node, rebuilt

# A stage waits if its waiting is this part of its time or more, and matters if its time is this part of all.
_WAITS_RATIO, _MATTERS_RATIO = 0.5, 0.02
# Where an element takes less, other programs make it wait.
_LEAST_WAIT_S = 2e-4
# Transformations that run a function of the user's.
_WITH_FUNCTION = ("map", "interleave", "flat_map")
# How long a node is read to see what it costs, and of how many batches at most.
_MOMENT_NS, _TIMED_BATCHES = 250_000_000, 16


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds for an element: on the clock, and of CPU time."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(max(self.wall_s - other.wall_s, 0.0), max(self.cpu_s - other.cpu_s, 0.0))

    def __truediv__(self, elements: int) -> Cost:
        return Cost(self.wall_s / elements, self.cpu_s / elements)

    @property
    def waits_ratio(self) -> float:
        """The part of the time without CPU time."""
        return max(1 - self.cpu_s / self.wall_s, 0.0) if self.wall_s else 0.0

    @property
    def waits(self) -> bool:
        return self.wall_s >= _LEAST_WAIT_S and self.waits_ratio >= _WAITS_RATIO


class StageCosts:
    """The costs of the stages of a pipeline, which are not known before `time`.

    Args:
      pipeline: the nodes.
      part: how it is cut.
    """

    def __init__(self, pipeline: list[Node], part: EpochPart) -> None:
        self._nodes = pipeline
        self._part = part
        self._costs: dict[int, Cost] = {}

    def time(self) -> None:
        """Times the maps and interleaves, each read alone for a moment, one thing at a time."""
        self._costs = self._timed()

    def matter(self, at: int) -> bool:
        """Whether a node takes a part of the time that is worth changing; yes where that is not known."""
        all_s = sum(cost.wall_s for cost in self._costs.values())
        if not all_s:  # nothing was timed, or other programs took the cores meanwhile
            return True
        return at in self._costs and self._costs[at].wall_s > _MATTERS_RATIO * all_s

    def wait(self, at: int) -> bool:
        """Whether a node takes time that matters, and mostly waits; no where that is not known."""
        cost = self._costs.get(at, Cost())
        return self.matter(at) and cost.waits

    def _timed(self) -> dict[int, Cost]:
        shuffles = [at for at in self._part.chain if self._nodes[at].kind == "shuffle"]
        serial = rebuilt(self._nodes, calls=None, behind=self._part.behind(_TIMED_BATCHES), without=shuffles)
        up_to: dict[int, Cost] = {}

        def cost_up_to(at: int) -> Cost:
            if at not in up_to:
                up_to[at] = _read_for_a_moment(serial[at])
                # Another program may have taken the core for a moment. A stage that waits does so again.
                if up_to[at].waits:
                    up_to[at] = min(up_to[at], _read_for_a_moment(serial[at]), key=lambda cost: cost.wall_s)
            return up_to[at]

        costs = {}
        for at, node in enumerate(self._nodes):
            if node.kind in _WITH_FUNCTION and node.inputs and self._part.has_several(at):
                before = sum((cost_up_to(number) for number in node.inputs), Cost())
                elements = self._part.batch_size_up_to(at)
                costs[at] = (cost_up_to(at) - before) / elements
        return costs


def _read_for_a_moment(dataset: Any) -> Cost:
    """Returns what an element of a dataset costs; without the first one, before which the dataset is made."""
    elements = iter(dataset)
    next(elements, None)
    count, began_ns, cpu_ns = 0, clock.now_ns(), clock.cpu_ns()
    for _ in elements:
        count += 1
        if clock.now_ns() - began_ns > _MOMENT_NS:
            break
    wall_s = (clock.now_ns() - began_ns) / 1e9
    return Cost(wall_s, (clock.cpu_ns() - cpu_ns) / 1e9) / max(count, 1)
