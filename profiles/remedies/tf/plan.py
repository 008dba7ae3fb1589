"""How a tf.data pipeline is rebuilt: as it is written, but for what remedies change in the plan of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unstall.profiles.measure.batches import FitData
from unstall.profiles.stages import Node, rebuilt

# Makes a dataset of a dataset.
Step = Callable[[Any], Any]


@dataclass(slots=True, kw_only=True)
class TfPlan:
    """How to rebuild a pipeline: at first as it is written, then as one remedy after the other changes it.

    Positions are those of the nodes as written.

    Attributes:
      batches: of an epoch; more than there are for a whole epoch.
      cut: steps that cut the pipeline to so many batches, by position: each follows its node at once.
      seed: of every shuffle, so that two pipelines have one order; None to keep the user's.
      calls: parallel calls of nodes, by position; as written unless given.
      buffers: sizes of the buffers of shuffles and prefetches, by position; as written unless given.
      without: positions of nodes that are left out.
      replaced: what builds a node instead, by position. It gets the step that would otherwise follow that node, and
        has to take it somewhere.
      at_end: steps that follow the last node.
      options: of tf.data's, which override the user's.
      fit_arguments: further arguments of `fit`, without which it cannot read the pipeline.
      ahead: how many batches can lie ready before the model asks for them.
      new_path: returns a path for a file that is removed with the data.
    """

    batches: float
    cut: Mapping[int, Step]
    seed: int | None
    buffers: dict[int, int]
    options: Any
    ahead: int
    new_path: Callable[[], str]
    calls: dict[int, int] = field(default_factory=dict)
    without: set[int] = field(default_factory=set)
    replaced: dict[int, Callable[[Step], Any]] = field(default_factory=dict)
    at_end: list[Step] = field(default_factory=list)
    fit_arguments: dict[str, Any] = field(default_factory=dict)
    _right_after: dict[int, list[Step]] = field(default_factory=dict, init=False)
    _after: dict[int, list[Step]] = field(default_factory=dict, init=False)

    def add_after(self, at: int, step: Step) -> None:
        """Adds a step after a node, and after what follows this node already."""
        self._after.setdefault(at, []).append(step)

    def add_right_after(self, at: int, step: Step) -> None:
        """Adds a step after a node, before all steps of `add_after`: whichever remedy comes first."""
        self._right_after.setdefault(at, []).append(step)

    def shuffle(self, size: int, settings: Mapping[str, Any]) -> Step:
        """Returns a step that shuffles; with the plan's seed, if it has one."""
        seeded = settings if self.seed is None else {**settings, "seed": self.seed}
        return lambda dataset: dataset.shuffle(size, **seeded)

    @property
    def is_sound(self) -> bool:
        """Whether no remedy has left out a node that another has put something after."""
        return not self.without & (self._right_after.keys() | self._after.keys())

    @property
    def steps(self) -> dict[int, Step]:
        """What follows each node, by position."""
        cut = {at: [step] for at, step in self.cut.items()}
        parts = (cut, self._right_after, self._after)
        return {
            at: _chained([step for part in parts for step in part.get(at, ())])
            for at in {*cut, *self._right_after, *self._after}
        }


def rebuild(dataset: Any, pipeline: list[Node], plan: TfPlan) -> Any:
    """Rebuilds a pipeline.

    Args:
      dataset: the pipeline as written; `pipeline` are its nodes.
    Returns:
      A dataset; or `FitData` with it, where the plan has arguments of `fit`.
    """
    steps = plan.steps
    replaced = {at: build(steps.pop(at, _chained(()))) for at, build in plan.replaced.items()}
    built = rebuilt(
        pipeline,
        calls="as written",
        replaced=replaced,
        behind=steps,
        buffers=plan.buffers,
        without=plan.without,
        calls_of=plan.calls,
        seed=plan.seed,
    )[-1]
    built = _chained(plan.at_end)(built).with_options(dataset.options()).with_options(plan.options)
    return FitData(arguments={"x": built, **plan.fit_arguments}) if plan.fit_arguments else built


def _chained(steps: Sequence[Step]) -> Step:
    def apply(dataset: Any) -> Any:
        for step in steps:
            dataset = step(dataset)
        return dataset

    return apply
