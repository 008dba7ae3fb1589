"""Rates of two ways to read the same images, which were timed in turns."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Images/sec, one per round.

    Attributes:
      before: of the source, or of the loader as written.
      after: of the copy, or of the equivalent.
    """

    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def medians(self) -> tuple[float, float]:
        """(before, after)."""
        return statistics.median(self.before), statistics.median(self.after)

    @property
    def speed_up(self) -> tuple[float, float, float]:
        """The smallest, the median and the largest of the rounds' ratios `after / before`."""
        ratios = sorted(after / before for before, after in zip(self.before, self.after, strict=True))
        return ratios[0], statistics.median(ratios), ratios[-1]
