"""What `truth` measures, raw: figures beside the truth, and attempts at cases of which the answer is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure beside the truth.

    Attributes:
      case: what the figure is of.
      name: of the figure, with its unit.
      truth: a number for each round; empty where nothing is promised of the figure.
      measured: a number for each round, in the unit of `truth`.
    """

    case: str
    name: str
    truth: tuple[float, ...]
    measured: tuple[float, ...]

    def followed_by(self, figure: Figure) -> Figure:
        """Returns this figure with the rounds of another behind its own."""
        return replace(self, truth=self.truth + figure.truth, measured=self.measured + figure.measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a case.

    Attributes:
      answer: what the tool under test answered, in a word.
      figures: numbers beside that answer, by name.
    """

    answer: str
    figures: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case of which the answer is known, and the attempts at it in their order."""

    name: str
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What was measured of one group so far."""

    name: str
    figures: tuple[Figure, ...] = ()
    cases: tuple[Case, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """All groups in which something was measured."""

    groups: tuple[Group, ...]
