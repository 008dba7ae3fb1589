"""How far a loader works ahead of the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """How far a loader may work ahead of the model, in batches.

    Attributes:
      parallel_batches: that the loader makes at the same time.
      buffered_batches: that can lie ready before the model asks for them.
      shuffled_batches: that a shuffle behind the work of the loader holds: as many are made before the first one
        arrives, and as many arrive when all work is done.
    """

    parallel_batches: int = 1
    buffered_batches: int = 0
    shuffled_batches: int = 0
