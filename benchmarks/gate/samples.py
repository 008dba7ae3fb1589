"""What fresh processes measured for the gate: plain data, raw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from profiles.gate import EPOCH, Invariants, check_rates, mark_varying
from profiles.statistics import median

Side = Literal["A", "B"]
SIDES: tuple[Side, Side] = ("A", "B")
# Of each subject, so many processes look at what has no noise: what differs between two of the same has some.
INSPECTED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What one process measured.

    Attributes:
      rates: images/sec of each window, by figure.
      anchors: the rates of the anchors beside these windows, by name.
      invariants: what has no noise; None where the process was not asked to look.
      backend: Keras' own.
      gpus: the names of those that the process saw.
    Raises:
      ValueError: at a rate that is not a number above 0, or where there is none.
    """

    rates: Mapping[str, tuple[float, ...]]
    anchors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    invariants: Invariants | None = None
    backend: str = ""
    gpus: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if EPOCH not in self.rates:
            raise ValueError(f"A process must measure whole epochs. Received: {', '.join(self.rates) or 'none'}.")
        for rates in (*self.rates.values(), *self.anchors.values()):
            if not rates:
                raise ValueError("A process must measure at least one window. Received: none.")
            check_rates(rates)

    @property
    def images_per_sec(self) -> dict[str, float]:
        """The process' rate by figure: the median of its windows."""
        return {figure: median(rates) for figure, rates in self.rates.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A process that measured one side of a comparison."""

    side: Side
    process: Process


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSamples:
    """The measurements of each comparison, by its name, in the order in which the processes ran: pair by pair."""

    comparisons: Mapping[str, tuple[Measurement, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSamples:
    """The processes of a check, in their order."""

    processes: tuple[Process, ...]


def invariants_of(processes: Sequence[Process]) -> Invariants | None:
    """Returns what the inspected among the processes of one subject agree on; None before there are two."""
    if len(processes) < INSPECTED:
        return None
    first, second = (process.invariants for process in processes[:INSPECTED])
    return None if first is None or second is None else mark_varying(first, second)
