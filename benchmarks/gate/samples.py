"""What fresh processes measured for the gate: plain data, raw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from unstall.profiles.gate import EPOCH, Invariants, check_rates, mark_varying
from unstall.profiles.statistics import median

Side = Literal["A", "B"]
SIDES: tuple[Side, Side] = ("A", "B")
# This many processes of each subject read the invariants: an invariant that differs between the two has noise.
INSPECTED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What one process measured.

    Attributes:
      rates: images/sec of each window, by figure.
      anchors: the rates of each anchor, measured beside the windows, by name.
      invariants: the loader's properties that have no noise; None where the process was not asked to read them.
      backend: the name of Keras' backend; "none" where Keras cannot be imported.
      reading: how the subject was read, a `Feed.reading`.
      gpus: the names of the GPUs that the process saw.
      packages: the versions of all packages, where the process ran in another environment; else empty.
      others_ratio: part of the cores' time that other programs took meanwhile; None where unknown.
    Raises:
      ValueError: if a rate is not a number above 0, a figure or an anchor has no rates, or whole epochs are missing.
    """

    rates: Mapping[str, tuple[float, ...]]
    anchors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    invariants: Invariants | None = None
    backend: str = ""
    reading: str = "fit"
    gpus: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    others_ratio: float | None = None

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
    """Returns a subject's invariants; None before two processes have run.

    An invariant that differs between the first two processes is marked as varying.
    """
    if len(processes) < INSPECTED:
        return None
    first, second = (process.invariants for process in processes[:INSPECTED])
    return None if first is None or second is None else mark_varying(first, second)
