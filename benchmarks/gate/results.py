"""Derives from the gate's samples the pairs, their ratios and the verdict, by the rules of `profiles.gate`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unstall.benchmarks.gate.plan import AskedCheck, AskedComparisons, Question
from unstall.benchmarks.gate.samples import (
    INSPECTED,
    SIDES,
    CheckSamples,
    ComparisonSamples,
    Measurement,
    Process,
    Side,
    invariants_of,
)
from unstall.profiles.gate import (
    FAILED,
    PAIRS,
    REGRESSION,
    Baseline,
    Decision,
    MeasuredRates,
    check,
    deviation,
    figures_of,
    judge,
    judge_invariants,
    looks,
    losses,
    machine_of,
    new_baseline,
    not_comparable,
    not_comparable_here,
    paired,
    rate_of,
    structure_note,
    with_lack,
)
from unstall.profiles.report import Document
from unstall.profiles.statistics import median

ComparisonsDocument = Document[AskedComparisons, ComparisonSamples]
CheckDocument = Document[AskedCheck, CheckSamples]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A question, and what was measured so far to answer it.

    Attributes:
      measurements: in the order in which the processes ran; every two of them are a pair.
      failure: why the next measurement failed; None if none did.
    """

    question: Question
    measurements: tuple[Measurement, ...] = ()
    failure: str | None = None

    def processes(self, side: Side) -> tuple[Process, ...]:
        return tuple(measurement.process for measurement in self.measurements if measurement.side == side)

    @property
    def pairs(self) -> int:
        """Number of complete pairs."""
        return len(self.measurements) // 2

    @property
    def orders(self) -> tuple[str, ...]:
        """Which side came first in each pair: "AB" or "BA"."""
        sides = [measurement.side for measurement in self.measurements]
        return tuple("".join(sides[2 * pair : 2 * pair + 2]) for pair in range(self.pairs))

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of the figures that are judged; empty before anything was measured."""
        return figures_of(*(measurement.process.rates for measurement in self.measurements))

    def ratios(self, figure: str) -> tuple[float, ...]:
        """Returns for each pair the images/sec of B divided by those of A."""
        return tuple(
            rate_of(b.images_per_sec, figure) / rate_of(a.images_per_sec, figure)
            for a, b in zip(self.processes("A"), self.processes("B"), strict=False)
        )

    def spread(self, figure: str) -> float | None:
        """Returns the standard deviation of one measurement's logarithm; None for fewer than 6 pairs.

        The estimate uses the median deviation of the pairs' ratios, on which a few outliers have little effect.
        """
        if self.pairs < PAIRS[0]:
            return None
        logs = [math.log(ratio) for ratio in self.ratios(figure)]
        return deviation(logs) / math.sqrt(2)  # a ratio has the noise of two measurements

    def decide(self) -> Decision | None:
        """Returns the decision of the first look that decides; None where more pairs are to be measured."""
        if self.failure is not None:
            return Decision(verdict=FAILED, pairs=self.pairs, reason=self.failure)
        worse = self._worse()
        if worse:
            return Decision(verdict=REGRESSION, pairs=self.pairs, reason=worse)
        a, b = ([process.images_per_sec for process in self.processes(side)] for side in SIDES)
        planned = self.question.looks
        try:
            for look in planned:
                if look.pairs > self.pairs:
                    break
                evidence = paired(b[: look.pairs], a[: look.pairs])
                decision = judge(evidence, look, self.question.claims, last=look == planned[-1])
                decision = with_lack(decision, evidence, self.question.claims, least_ratio=self.question.at_least)
                if decision is not None:
                    return _with_others(decision, [measurement.process for measurement in self.measurements])
        except ValueError as error:  # a ratio that is no number
            return Decision(verdict=FAILED, pairs=self.pairs, reason=str(error))
        return None

    def _worse(self) -> str:
        """Returns which work has grown from A to B if both should do the same; "" before two pairs are complete."""
        if not self.question.same_work or self.pairs < INSPECTED:
            return ""
        before, now = (invariants_of(self.processes(side)) for side in SIDES)
        return "; ".join(losses(before, now)) if before is not None and now is not None else ""

    def to_dict(self, decision: Decision | None) -> dict[str, Any]:
        """Returns what other tools read: order and ratios of each pair, the looks, the invariants, the decision."""
        a, b = (invariants_of(self.processes(side)) for side in SIDES)
        return {
            "orders": list(self.orders),
            "ratios": {figure: list(self.ratios(figure)) for figure in self.figures},
            "looks": [
                {"pairs": look.pairs, "alarm_share": look.alarm_share, "same_share": look.same_share}
                for look in self.question.looks
            ],
            "invariants": {"a": a and a.to_dict(), "b": b and b.to_dict()},
            "decision": decision and decision.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A benchmark, and what was measured of it so far.

    Attributes:
      provenance: what `profiles.provenance.machine` returned.
      dataset: number of images, and the fingerprint of their content; None where the subject loads its own data.
      processes: in the order in which they ran.
      failure: why the next process failed; None if none did.
    """

    asked: AskedCheck
    provenance: Mapping[str, Any]
    dataset: Mapping[str, Any] | None
    processes: tuple[Process, ...] = ()
    failure: str | None = None

    def decide(self) -> Decision | None:
        """Returns the decision of the first look that decides; None where more is to be measured.

        The verdict is "not comparable" if the machine, a version or the data set differs from those recorded. What only
        a process can know (the backend, its GPUs, how the
        subject is read, which anchors run) is taken to be as recorded until the first process has run.
        """
        baseline = self.asked.baseline
        elsewhere = self._elsewhere()
        if elsewhere is not None:
            return elsewhere
        if self.failure is not None:
            return Decision(verdict=FAILED, pairs=len(self.processes), reason=self.failure)
        invariants = invariants_of(self.processes)
        changed = None if invariants is None else judge_invariants(baseline, invariants)
        if changed is not None:
            return changed
        measured = [_measured(process) for process in self.processes]
        planned = looks(self.asked.most_processes)
        try:
            for look in planned:
                if look.pairs > len(measured):
                    break
                some = measured[: look.pairs]
                decision = check(baseline, some, look, threshold=self.asked.threshold, last=look == planned[-1])
                if decision is not None:
                    return _with_others(decision, self.processes)
        except ValueError as error:  # a ratio that is no number
            return Decision(verdict=FAILED, pairs=len(measured), reason=str(error))
        return None

    def _elsewhere(self) -> Decision | None:
        asked, recorded_machine = self.asked, self.asked.baseline.machine
        if self.processes:
            backend, gpus = self.processes[0].backend, self.processes[0].gpus
        else:
            backend, gpus = recorded_machine["keras_backend"], recorded_machine["gpus"]
        elsewhere = not_comparable(
            asked.baseline,
            subject=asked.subject,
            measure=asked.measure,
            machine=machine_of(self.provenance, backend, gpus),
            dataset=self.dataset,
        )
        if elsewhere is not None or not self.processes:
            return elsewhere
        return not_comparable_here(asked.baseline, self.processes[0].reading, self.processes[0].anchors)


def baseline_of(
    processes: Sequence[Process],
    *,
    subject: str,
    measure: str,
    provenance: Mapping[str, Any],
    dataset: Mapping[str, Any] | None,
) -> Baseline:
    """Makes a baseline of the processes that measured a benchmark; the first two of them have read the invariants."""
    invariants = invariants_of(processes)
    assert invariants is not None
    return new_baseline(
        [_measured(process) for process in processes],
        subject=subject,
        measure=measure,
        reading=processes[0].reading,
        invariants=invariants,
        machine=machine_of(provenance, processes[0].backend, processes[0].gpus),
        dataset=dataset,
    )


def _with_others(decision: Decision, processes: Sequence[Process]) -> Decision:
    """Returns the decision; what it lacks says what part of the cores other programs took meanwhile."""
    ratios = [process.others_ratio for process in processes if process.others_ratio is not None]
    if decision.lack is None or not ratios:
        return decision
    return replace(decision, lack=replace(decision.lack, others_ratio=median(ratios)))


def _measured(process: Process) -> MeasuredRates:
    """Returns the medians of a process' windows: the benchmark's rate for each figure, and each anchor's rate."""
    return MeasuredRates(
        images_per_sec=process.images_per_sec,
        anchors={name: median(rates) for name, rates in process.anchors.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """The result of a comparison.

    Attributes:
      name: of the comparison.
      decision: None where the run was stopped: then nothing is decided.
    """

    name: str
    comparison: Comparison
    decision: Decision | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check; `decision` is None where the run was stopped."""

    check: Check
    decision: Decision | None


def derive_comparisons(document: ComparisonsDocument) -> tuple[ComparisonResult, ...]:
    """Derives the result of each comparison, in the order in which they were asked."""
    failures = {left_out.who: left_out.reason for left_out in document.left_out}
    comparisons = {
        name: Comparison(
            question=question,
            measurements=document.samples.comparisons.get(name, ()),
            failure=failures.get(name),
        )
        for name, question in document.plan.questions.items()
    }
    return tuple(
        ComparisonResult(name=name, comparison=comparison, decision=comparison.decide() if document.complete else None)
        for name, comparison in comparisons.items()
    )


def derive_check(document: CheckDocument) -> CheckResult:
    """Derives the result of the check."""
    failures = {left_out.who: left_out.reason for left_out in document.left_out}
    checked = Check(
        asked=document.plan,
        provenance=document.provenance,
        dataset=dataset_of(document.dataset),
        processes=document.samples.processes,
        failure=failures.get(document.plan.name),
    )
    decision = checked.decide() if document.complete else None
    invariants = invariants_of(checked.processes)
    if decision is not None and invariants is not None:
        decision = replace(decision, note=structure_note(document.plan.baseline, invariants))
    return CheckResult(check=checked, decision=decision)


def dataset_of(source: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns what the photos of a baseline and of a check must have in common."""
    return None if source is None else {"images": source["images"], "content": source["content"]}


def exit_code(*decisions: Decision | None) -> int:
    """Returns the gravest exit code: 1 (regression) before 3 (not measured or compared) before 4 (inconclusive)."""
    codes = [decision.exit_code for decision in decisions if decision is not None]
    return next((code for code in (1, 3, 4) if code in codes), 0)
