"""A comparison: pairs of fresh processes, in an order that coins decide, until a look decides it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gate_processes import INSPECTED, MeasureError, Process, Subject, invariants_of
from profiles.evidence_of_change import Evidence, Paired
from profiles.gate_verdict import FAILED, REGRESSION, Claims, Decision, change, decision, first_decision, floor, paired
from profiles.invariants import losses
from profiles.looks import PAIRS, Look, plan
from profiles.statistics import median

Measure = Callable[[Subject, bool], Process]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of two subjects.

    Attributes:
      a, b: B is judged against A.
      threshold: the loss that counts.
      at_least: B serves so many times the images/sec of A: asked in the place of "is it the same?" where given.
      pairs: at each look.
      same_work: whether A and B are to do the same: then work that has grown is a regression whatever the rate.
    """

    a: Subject
    b: Subject
    threshold: float
    at_least: float | None = None
    pairs: tuple[int, ...] = PAIRS
    same_work: bool = False

    @property
    def looks(self) -> tuple[Look, ...]:
        return plan(Paired.least_p, self.pairs)

    def claims(self, evidence: Evidence, look: Look) -> Claims:
        if self.at_least is not None:
            return floor(evidence, look, self.at_least)
        return change(evidence, look, self.threshold)


@dataclass(slots=True)
class Comparison:
    """What was measured so far, in pairs, and what it came to."""

    question: Question
    a: list[Process] = field(default_factory=list)
    b: list[Process] = field(default_factory=list)
    orders: list[str] = field(default_factory=list)
    decision: Decision | None = None

    def to_dict(self) -> dict[str, Any]:
        question = self.question
        sides = {"a": (question.a, self.a), "b": (question.b, self.b)}
        return {
            "question": {
                "threshold": question.threshold,
                "at_least": question.at_least,
                "looks": [
                    {"pairs": one.pairs, "alarm_share": one.alarm_share, "same_share": one.same_share}
                    for one in question.looks
                ],
            },
            **{
                side: {
                    "label": subject.label,
                    "kind": subject.kind,
                    "invariants": None if (seen := invariants_of(processes)) is None else seen.to_dict(),
                    "processes": [one.to_dict() for one in processes],
                }
                for side, (subject, processes) in sides.items()
            },
            "orders": list(self.orders),
            "ratios": [b.images_per_sec / a.images_per_sec for a, b in zip(self.a, self.b, strict=False)],
            "decision": None if self.decision is None else self.decision.to_dict(),
        }

    @property
    def spread(self) -> float | None:
        """The standard deviation of one measurement's logarithm, by the pairs' middle half; None below 6 pairs."""
        if len(self.b) < PAIRS[0]:
            return None
        logs = [math.log(b.images_per_sec / a.images_per_sec) for a, b in zip(self.a, self.b, strict=False)]
        middle = median(logs)
        # 1.4826 times the median deviation is the standard deviation where noise is Gaussian; a pair has that of two.
        return 1.4826 * median([abs(one - middle) for one in logs]) / math.sqrt(2)


def compare(
    question: Question, measure: Measure, coin: random.Random, done: Callable[[str], None] = lambda text: None
) -> Comparison:
    """Measures pairs until a look decides.

    Args:
      measure: measures a subject in a fresh process; True where what has no noise is to be looked at as well.
      coin: decides which of a pair comes first.
      done: called with a few words after each measurement.
    """
    comparison = Comparison(question=question)
    sides = {"A": (question.a, comparison.a), "B": (question.b, comparison.b)}

    def decide(look: Look, last: bool) -> Decision | None:
        while len(comparison.orders) < look.pairs:
            order = coin.choice(("AB", "BA"))
            for side in order:
                subject, processes = sides[side]
                processes.append(measure(subject, len(processes) < INSPECTED))
                done(f"{side} {subject.label}: {processes[-1].images_per_sec:,.0f} images/sec")
            comparison.orders.append(order)
            worse = _worse(comparison)
            if worse:
                return Decision(verdict=REGRESSION, pairs=len(comparison.orders), reason=worse)
        evidence = paired([one.images_per_sec for one in comparison.b], [one.images_per_sec for one in comparison.a])
        return decision(evidence, look, question.claims(evidence, look), last=last)

    try:
        comparison.decision = first_decision(question.looks, decide)
    except (MeasureError, ValueError) as error:
        comparison.decision = Decision(verdict=FAILED, pairs=len(comparison.orders), reason=str(error))
    return comparison


def _worse(comparison: Comparison) -> str:
    if not comparison.question.same_work:
        return ""
    before, now = invariants_of(comparison.a), invariants_of(comparison.b)
    return "; ".join(losses(before, now)) if before is not None and now is not None else ""
