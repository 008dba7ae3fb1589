"""Derives how many batches came once, more often, and never, and whether our client kept its promise."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from unstall.benchmarks.service.faults.plan import KINDS, OURS, POLICIES, Case, FaultsAsked
from unstall.benchmarks.service.faults.samples import FaultSample, FaultSamples
from unstall.profiles.report import Document

FaultsDocument = Document[FaultsAsked, FaultSamples]

# Our client may keep the trainer waiting for its patience and for making some batches itself, no longer.
LONGEST_WAIT_S = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultResult:
    """What became of an epoch's batches.

    Attributes:
      once, more, never: how many batches came once, more than once, and not at all.
      repaired, dropped, end: as they were measured.
      longest_wait_s: the trainer's longest wait after the fault.
      wall_s: of the epoch.
      broken: whether our client broke its promise: each batch once, and no long wait.
    """

    case: Case
    batches: int
    once: int
    more: int
    never: int
    repaired: int
    dropped: int
    end: str
    longest_wait_s: float
    wall_s: float
    broken: bool

    def to_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        return {**fields.pop("case"), **fields}


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What is derived from a document, in the order of policies and kinds.

    Attributes:
      not_run: the cases that could not be run to their end.
    """

    cases: tuple[FaultResult, ...]
    not_run: tuple[str, ...] = ()

    @property
    def broken(self) -> tuple[str, ...]:
        """The cases in which our client broke its promise, or which could not be run to their end."""
        return (*(result.case.name for result in self.cases if result.broken), *self.not_run)


def derive(document: FaultsDocument) -> Results:
    """Derives the result of each case that was run."""
    kinds, policies = list(KINDS), list(POLICIES)
    results = sorted(
        map(_result, document.samples.cases),
        key=lambda result: (policies.index(result.case.policy), kinds.index(result.case.kind)),
    )
    not_run = tuple(left_out.who for left_out in document.left_out if f"/{OURS}/" in left_out.who)
    return Results(cases=tuple(results), not_run=not_run)


def _result(sample: FaultSample) -> FaultResult:
    once = sum(count == 1 for count in sample.deliveries)
    longest_s = sample.longest_wait_ns / 1e9
    kept = once == sample.batches and sample.end == "complete" and longest_s <= LONGEST_WAIT_S
    return FaultResult(
        case=sample.case,
        batches=sample.batches,
        once=once,
        more=sum(count > 1 for count in sample.deliveries),
        never=sum(count == 0 for count in sample.deliveries),
        repaired=sample.repaired,
        dropped=sample.dropped,
        end=sample.end,
        longest_wait_s=longest_s,
        wall_s=sample.wall_ns / 1e9,
        broken=sample.case.policy == OURS and not kept,
    )
