"""Measures for the gate: pairs of fresh processes until a look decides, and a benchmark against its recorded ratios."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gate.processes import INSPECTED, MeasureError, Process, Subject, invariants_of
from profiles.gate import (
    EPOCH,
    FAILED,
    PAIRS,
    RECORDED,
    REGRESSION,
    Baseline,
    Claims,
    Decision,
    Evidence,
    Look,
    Measured,
    Paired,
    broken,
    change,
    check,
    figures_of,
    first_decision,
    floor,
    judge,
    looks,
    losses,
    machine_of,
    not_comparable,
    paired,
    plan,
    rate_of,
    recorded,
)
from profiles.statistics import median

# True where what has no noise is to be looked at as well.
MeasureBenchmark = Callable[[bool], Process]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and on what a benchmark is measured, as it is held against a baseline's.

    Attributes:
      subject: what is measured, as the user calls it.
      provenance: of `profiles.provenance.machine`.
    """

    subject: str
    measure: str
    provenance: Mapping[str, Any]
    dataset: Mapping[str, Any] | None

    def differs(self, baseline: Baseline, backend: str, gpus: Sequence[str]) -> Decision | None:
        """Returns the verdict where the baseline is of another place."""
        machine = machine_of(self.provenance, backend, gpus)
        return not_comparable(
            baseline, subject=self.subject, measure=self.measure, machine=machine, dataset=self.dataset
        )


@dataclass(slots=True)
class Check:
    """A check: what was measured so far, and what it came to."""

    baseline: Baseline
    processes: list[Process] = field(default_factory=list)
    decision: Decision | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "recorded": {
                name: {
                    "judge": figure.judge,
                    "floor_images_per_sec": figure.floor_images_per_sec,
                    "ratios": {anchor: list(ratios) for anchor, ratios in figure.ratios.items()},
                }
                for name, figure in self.baseline.figures.items()
            },
            "processes": [one.to_dict() for one in self.processes],
            "decision": None if self.decision is None else self.decision.to_dict(),
        }


def record(measure: MeasureBenchmark, place: Place, done: Callable[[Process], None]) -> Baseline:
    """Measures a benchmark in fresh processes and returns the baseline.

    Raises:
      MeasureError: if it cannot be measured.
    """
    processes: list[Process] = []
    for number in range(RECORDED):
        processes.append(measure(number < INSPECTED))
        done(processes[-1])
    invariants = invariants_of(processes)
    assert invariants is not None
    return recorded(
        [measured(one) for one in processes],
        subject=place.subject,
        measure=place.measure,
        invariants=invariants,
        machine=machine_of(place.provenance, processes[0].backend, processes[0].gpus),
        dataset=place.dataset,
    )


def run_check(
    baseline: Baseline, measure: MeasureBenchmark, place: Place, *, threshold: float, done: Callable[[Process], None]
) -> Check:
    """Measures fresh processes until a look decides; none where machine, versions or data are not those recorded."""
    running = Check(baseline=baseline)
    processes = running.processes

    def decide(look: Look, last: bool) -> Decision | None:
        while len(processes) < look.pairs:
            processes.append(measure(len(processes) < INSPECTED))
            done(processes[-1])
            changed = None
            if len(processes) == 1:
                # Only the process knows of the GPUs: this one imports nothing that could ask.
                changed = place.differs(baseline, processes[0].backend, processes[0].gpus)
            elif len(processes) == INSPECTED and (seen := invariants_of(processes)) is not None:
                changed = broken(baseline, seen)
            if changed is not None:
                return changed
        return check(baseline, [measured(one) for one in processes], look, threshold=threshold, last=last)

    try:
        # What only a process can know is taken to be as recorded until there was one.
        elsewhere = place.differs(baseline, baseline.machine["keras_backend"], baseline.machine["gpus"])
        running.decision = elsewhere or first_decision(looks(), decide)
    except (MeasureError, ValueError) as error:
        running.decision = Decision(verdict=FAILED, pairs=len(processes), reason=str(error))
    return running


def measured(process: Process) -> Measured:
    """Returns the figures of a process: of the benchmark, and one for each anchor."""
    return Measured(
        images_per_sec=process.images_per_sec,
        anchors={name: median(rates) for name, rates in process.anchors.items()},
    )


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
            "ratios": {name: list(self.ratios(name)) for name in self.figures},
            "decision": None if self.decision is None else self.decision.to_dict(),
        }

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of those that are judged; none before anything was measured."""
        return figures_of(*(one.images_per_sec for one in (*self.a, *self.b)))

    def ratios(self, figure: str) -> tuple[float, ...]:
        """Returns images/sec of B over A, of each pair."""
        return tuple(
            rate_of(b.images_per_sec, figure) / rate_of(a.images_per_sec, figure)
            for a, b in zip(self.a, self.b, strict=False)
        )

    def spread(self, figure: str) -> float | None:
        """Returns the standard deviation of a measurement's logarithm, by the pairs' middle half; None below 6."""
        if len(self.b) < PAIRS[0]:
            return None
        logs = [math.log(ratio) for ratio in self.ratios(figure)]
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
                done(f"{side} {subject.label}: {processes[-1].images_per_sec[EPOCH]:,.0f} images/sec")
            comparison.orders.append(order)
            worse = _worse(comparison)
            if worse:
                return Decision(verdict=REGRESSION, pairs=len(comparison.orders), reason=worse)
        evidence = paired([one.images_per_sec for one in comparison.b], [one.images_per_sec for one in comparison.a])
        return judge(evidence, look, question.claims, last=last)

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
