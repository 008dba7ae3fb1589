"""What became of an epoch's batches in each case."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.benchmarks.service.faults.plan import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSample:
    """One epoch with a fault.

    Attributes:
      batches: of the epoch.
      deliveries: how often the trainer got each batch, by the batch's number.
      repaired: how many the client made itself.
      dropped: how many came once more, and were dropped by the client.
      end: "complete" if the epoch ended by itself; "waited" if it was ended from outside; else the error's first line.
      longest_wait_ns: the longest time that the trainer waited for a batch after the fault.
      wall_ns: of the epoch.
    """

    case: Case
    batches: int
    deliveries: tuple[int, ...]
    repaired: int
    dropped: int
    end: str
    longest_wait_ns: int
    wall_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSamples:
    """What was measured, in the order of the cases."""

    cases: tuple[FaultSample, ...]
