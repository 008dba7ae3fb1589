"""What the file of a remedy holds: how it is found, built, written into code, and what it does not go with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from unstall.profiles.remedies.remedy import Need, Remedy, Untried

DataT = TypeVar("DataT")
PlanT = TypeVar("PlanT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(Generic[PlanT]):
    """A remedy that was found in some data.

    Attributes:
      remedy: what it changes, how the code reads with it, and what it does to the batches.
      build: makes that change in a plan, by which the data are then built.
      conflicts: names of the remedies that it cannot be combined with.
    """

    remedy: Remedy
    build: Callable[[PlanT], None]
    conflicts: frozenset[str] = frozenset()


class Change(ABC, Generic[DataT, PlanT]):
    """A kind of change of some library's data, which offers one remedy or several of which one is taken.

    Attributes:
      names: of the remedies that it may offer.
      serves: what the data must lose, any of these, for it to be looked for.
    """

    names: ClassVar[tuple[str, ...]]
    serves: ClassVar[tuple[Need, ...]]

    @abstractmethod
    def find(self, data: DataT) -> Iterator[Offer[PlanT] | Untried]:
        """Yields the remedies for some data, the most promising first, and what cannot be tried, with the reason."""
