"""Records a benchmark as ratios to anchors, and checks what it serves now against what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gate_processes import INSPECTED, MeasureError, Process, invariants_of
from profiles.baseline import RECORDED, Baseline, Measured, broken, check, looks, machine_of, not_comparable, recorded
from profiles.gate_verdict import FAILED, Decision, first_decision
from profiles.looks import Look
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
            "judge": self.baseline.judge,
            "floor_images_per_sec": self.baseline.floor_images_per_sec,
            "recorded": {name: list(ratios) for name, ratios in self.baseline.ratios.items()},
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
        running.decision = elsewhere or first_decision(looks(baseline), decide)
    except (MeasureError, ValueError) as error:
        running.decision = Decision(verdict=FAILED, pairs=len(processes), reason=str(error))
    return running


def measured(process: Process) -> Measured:
    """Returns the one figure of a process for the benchmark and for each anchor."""
    return Measured(
        images_per_sec=process.images_per_sec,
        anchors={name: median(rates) for name, rates in process.anchors.items()},
    )
