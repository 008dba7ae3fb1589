"""What all data whose remedies are tried have in common: they can be built again, with remedies and without."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from unstall.profiles.measure.batches import by_hand
from unstall.profiles.remedies.equality import BatchComparison, Readings
from unstall.profiles.remedies.remedy import Remedy, Untried

# As many batches as the epoch has, also where it has no end.
WHOLE = math.inf
# So many batches are kept in memory, to train on in turns with the data.
_KEPT_BATCHES = 4


class Failed(Exception):
    """Data cannot be built or read; the message says why, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemory:
    """Batches in memory, which a loader that costs nothing would give again and again: an epoch has `steps` of them."""

    batches: Sequence[Any]
    steps: int

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(itertools.cycle(self.batches), self.steps)


class Data(ABC):
    """The data of a `fit` or loop, which can be built again with remedies.

    Attributes:
      remedies: that can be tried, the most promising first.
      untried: those that cannot, and why.
      stages: names of the stages; empty where these are not known.
      epoch_batches: of an epoch in real use; None where that is not known.
      epoch_images: the same in images.
      scaled: whether a part of an epoch is the whole at a smaller scale, its edges included.
      edges_by: what takes time at the edges of the script's epochs of which measured ones show too little: tf.data's
        tuner, or workers that start anew; None where nothing does.
      stands_in: says what takes the place of the script's steps; None for the script's own.
    """

    remedies: Sequence[Remedy]
    epoch_batches: float | None
    epoch_images: float | None
    stages: tuple[str, ...] = ()
    scaled = False
    edges_by: str | None = None
    stands_in: str | None = None

    def __init__(self) -> None:
        self.untried: list[Untried] = []
        self._readings = Readings()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the rates must know."""
        return (*((self.stands_in,) if self.stands_in else ()), *self._readings.notes)

    def is_whole(self, batches: int) -> bool:
        """Whether a measured epoch of so many batches is a whole epoch of the user's."""
        return self.epoch_batches is not None and batches >= self.epoch_batches

    @abstractmethod
    def ahead(self, names: Sequence[str]) -> int:
        """Returns how many batches can lie ready with these remedies, before the model asks for them."""

    def most_gain(self, names: Sequence[str]) -> float:
        """Returns how many times as fast these remedies make the data at best; 1 where they promise no number."""
        return 1.0

    @abstractmethod
    def built(self, names: Sequence[str], batches: float) -> Any:
        """Returns the data with the remedies of these names; as written without any.

        Args:
          batches: of an epoch; `WHOLE` for whole epochs, whose length may change where the user's does.
        Raises:
          Failed: if the data cannot be built so.
        """

    def in_memory(self, batches: int) -> InMemory:
        """Returns the first batches as written, kept in memory, for epochs of so many.

        Raises:
          Failed: if the data cannot be built.
        """
        kept = list(itertools.islice(self._by_hand(self.built((), _KEPT_BATCHES)), _KEPT_BATCHES))
        return InMemory(batches=kept, steps=batches)

    def _by_hand(self, data: Any) -> Iterator[Any]:
        """Returns the batches of one epoch of what `built` returned, in the structure that a step gets of them."""
        return by_hand(data)

    def whole(self, names: Sequence[str]) -> Any:
        """Returns the data of whole epochs with these remedies, to be used in the place of the user's."""
        return self.built(names, WHOLE)

    def fits(self, names: Sequence[str]) -> bool:
        """Whether these remedies can be combined."""
        return len(names) < 2

    def compared(self, names: Sequence[str]) -> BatchComparison:
        """Compares the first batches of the data with these remedies with those of the data as written."""
        return self._readings.compared(names, self._first_batches)

    def close(self) -> None:  # noqa: B027 - most leave nothing there
        """Removes what the remedies have left on the disk."""

    def _first_batches(self, names: Sequence[str]) -> list[Any]:
        """Returns the first batches of an epoch with these remedies, in an order that comes again."""
        raise NotImplementedError
