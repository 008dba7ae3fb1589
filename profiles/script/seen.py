"""What was seen of the longest `fit` or loop of a script, so that remedies for its data can be tried afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from unstall.profiles.code_line import CodeLine
from unstall.profiles.script.results import FitRecord
from unstall.profiles.stages.places import Place

if TYPE_CHECKING:
    from unstall.profiles.script.loop_step import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A `fit` or a loop.

    Attributes:
      name: as in the report.
      place: the line of the call, or where the loop begins.
      took_ns: time of its epochs.
      epochs: how many there were, or would have been without `--max-steps`; None where that is not known.
      anew: whether the script made the data anew for each call, or for each epoch of a loop.
      changed: an attribute of the data set that the script changed in between; None where it changed none.
    """

    name: str
    place: CodeLine
    took_ns: int
    epochs: int | None
    anew: bool = False
    changed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFit(Seen):
    """A `fit`: its model, what it was given, and where it was called.

    Attributes:
      model: as the script left it.
      train_function: of the model, as the `fit` left it.
      arguments: of the last call of `fit`, by name.
      batch_spec: of the iterator that the model's step was traced for.
      call: of `fit` in the user's code; None where it is not known.
      epoch_batches: of a whole epoch; None where that is not known.
      lengths: steps of the whole epochs of all calls at its place; the profiler adds those of later calls.
    """

    model: Any
    train_function: Any
    arguments: Mapping[str, Any]
    batch_spec: Any
    call: Place | None
    epoch_batches: int | None = None
    lengths: Set[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLoop(Seen):
    """A loop: its data, and the times of its steps.

    Attributes:
      data: of its last pass.
      record: of the loop.
      threads: how many threads a step keeps busy.
      queued_ratio: the part of a step in which its thread waited for a core.
      work: the modules and optimizers of a step in PyTorch; None where these are not known.
      behind: whether a device computes the steps asynchronously.
      left: whether the script left the data before their end, in every pass.
    """

    data: Any
    record: FitRecord
    threads: int
    queued_ratio: float = 0.0
    work: Work | None = None
    behind: bool = False
    left: bool = False


class Applies(Protocol):
    """Puts remedies in place of what a script gives to `fit`, or loops over."""

    def to_fit(self, place: CodeLine, call: Place | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a `fit` that differ."""

    def to_loop(self, place: CodeLine, data: Any) -> Any:
        """Returns what a loop reads."""

    def as_given(self, data: Any) -> Any:
        """Returns the data that the script gave, of what took their place; of other data, the same."""
