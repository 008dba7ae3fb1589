"""A tf.data pipeline as its remedies see it: its nodes, what they cost and draw, and where they stand in the code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unstall.profiles.remedies.edits import gives_elements_only, passed
from unstall.profiles.remedies.remedy import Edit, Effect, Remedy
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.tf.made_again import MadeAgain
from unstall.profiles.remedies.tf.stage_costs import StageCosts
from unstall.profiles.remedies.tf.tf_part import EpochPart
from unstall.profiles.stages import Node, inputs_at_once, python_in, random_in, shuffle_buffer_of, shuffle_settings
from unstall.profiles.stages.places import Place, place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineView:
    """What remedies need to know of a pipeline. All positions are those of nodes.

    Attributes:
      dataset: the pipeline.
      nodes: its nodes.
      part: how it is cut.
      costs: what its stages cost.
      again: whether its Python code draws.
      room: what the remedies may take.
      repeats: whether `fit` may be told the steps of an epoch.
      uncached: why no epoch would read a cache that an earlier epoch has filled; None where epochs would.
      by_name: whether remedies are looked for by their names alone: what they gain is known, and no stage is timed.
      fit_place: the call of `fit`; None where it is not known.
    """

    dataset: Any
    nodes: list[Node]
    part: EpochPart
    costs: StageCosts
    again: MadeAgain
    room: Room
    repeats: bool
    uncached: str | None
    by_name: bool
    fit_place: Place | None

    # Nodes

    @property
    def last(self) -> int:
        """The position of the last node."""
        return len(self.nodes) - 1

    @property
    def own_maps(self) -> list[int]:
        """The maps and interleaves of the user's own that take more than one element an epoch."""
        return [
            at
            for at, node in enumerate(self.nodes)
            if node.kind in ("map", "interleave") and self.part.has_several(at) and self.is_own(at)
        ]

    def calls_at(self, positions: Sequence[int], calls: int) -> dict[int, int]:
        """Returns how many of so many calls at once each of these nodes can make, without those that make one."""
        most = {at: inputs_at_once(self.nodes[at].dataset) for at in positions if self.nodes[at].kind == "interleave"}
        able = {at: min(calls, most.get(at, calls)) for at in positions}
        return {at: number for at, number in able.items() if number > 1}

    def written(self, at: int) -> tuple[int | None, int | None, bool]:
        """Returns a node's (parallel calls, buffer size, whether AUTOTUNE chooses one of them) as the user wrote it."""
        from unstall.profiles.stages.tf_model import written

        return written(self.nodes[at].dataset)

    def is_autotuned(self, at: int) -> bool:
        """Whether AUTOTUNE chooses a node's parallel calls or its buffer."""
        return self.written(at)[2]

    def named(self, positions: Iterable[int]) -> str:
        """Returns the names of nodes, each once."""
        return ", ".join(dict.fromkeys(f"`{self.nodes[at].name}`" for at in positions))

    # What draws

    def draws(self, at: int) -> bool:
        """Whether a transformation draws random numbers."""
        return bool(random_in(self.nodes[at].dataset) or self.python_that_draws(at))

    def python_that_draws(self, at: int) -> tuple[str, ...]:
        """Returns the Python code of a transformation, as `python_in` does, unless its elements come again the same."""
        python = python_in(self.nodes[at].dataset)
        return () if not python or self.again.is_same(at) else python

    # Shuffles

    def buffer_of(self, at: int) -> int:
        """Returns the buffer size of a shuffle: no more than there are elements."""
        size = shuffle_buffer_of(self.nodes[at].dataset)
        return size if size > 0 else int(min(self.part.elements, 2**31))

    def settings_of(self, shuffles: Sequence[int]) -> dict[str, Any]:
        """Returns the seed and the like of the largest of some shuffles, for the one that takes their place."""
        largest = self.nodes[max(shuffles, key=self.buffer_of)].dataset
        settings, place = shuffle_settings(largest), place_of(largest)
        if place is not None and not _is_of_dataset(place) and not passed(place, ["seed"]):
            settings.pop("seed", None)  # a library drew it
        return settings

    # The user's code

    def is_own(self, at: int) -> bool:
        """Whether the user's own code calls the transformation of a node, and not a library for the user."""
        place = place_of(self.nodes[at].dataset)
        return place is None or sum(place_of(node.dataset) == place for node in self.nodes) == 1

    def can_be_cut(self, at: int) -> bool:
        """Whether the user's code can put something behind a node."""
        place = place_of(self.nodes[at].dataset)
        readers = [node for node in self.nodes if at in node.inputs]
        return place is None or all(place_of(node.dataset) != place for node in readers)

    def remedy(
        self, name: str, text: str, code: str, effect: Effect, edits: Sequence[Edit], *, at: int, **more: Any
    ) -> Remedy:
        """Returns a remedy.

        Args:
          edits: of the user's code; empty where it is too involved.
          at: the node whose place in the code is named.
        """
        place = place_of(self.nodes[at].dataset)
        return Remedy(
            name=name,
            text=text,
            code=code,
            effect=effect,
            place=None if place is None else str(place),
            edits=tuple(edits),
            **more,
        )

    def edit(self, at: int, kind: Any, text: str) -> list[Edit]:
        """Returns the edit of the call that made a node; none where it is not known, or makes other nodes too."""
        place = place_of(self.nodes[at].dataset)
        if place is None or (kind in ("argument", "remove") and not self.is_own(at)):
            return []
        if kind in ("behind", "option") and not self._ends_with(place, at):
            return []
        return [Edit(place=place, kind=kind, text=text)]

    def edits(self, positions: Iterable[int], kind: Any, text: str) -> list[Edit]:
        return [edit for at in positions for edit in self.edit(at, kind, text)]

    def _ends_with(self, place: Place, at: int) -> bool:
        """Whether what stands behind a call that made a node stands behind this node, and behind no other."""
        if not _is_of_dataset(place):  # a library's, such as `image_dataset_from_directory`
            return gives_elements_only(place)
        return not has_twin(self.nodes[at], self.nodes)


def has_twin(node: Node, pipeline: Sequence[Node]) -> bool:
    """Whether the call of the user's that made a node has made another such node, as in a loop or in a function."""
    place = place_of(node.dataset)
    return sum(other.kind == node.kind and place_of(other.dataset) == place for other in pipeline) > 1


def only_with(needed: list[Edit], others: Iterable[Edit]) -> list[Edit]:
    """Returns all edits; none where the needed ones cannot be written, without which the others are another change."""
    return [*others, *needed] if needed else []


def shuffle_code(size: int, settings: Mapping[str, Any]) -> str:
    return f".shuffle({', '.join([str(size), *(f'{name}={value!r}' for name, value in settings.items())])})"


def _is_of_dataset(place: Place) -> bool:
    """Whether a call is one of a method of tf.data's."""
    import tensorflow as tf

    return hasattr(tf.data.Dataset, place.called)
