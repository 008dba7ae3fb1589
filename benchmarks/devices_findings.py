"""What an experiment, and a sweep, came to: rows put together with what they mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.backend import named_backend
from benchmarks.devices_judgement import Advantage, Comparison, advantages, compare, named, recommend
from benchmarks.devices_rows import Row
from benchmarks.devices_sweeps import Sweep, Value
from benchmarks.experiments import Case, Experiment
from profiles.devices import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """One experiment's rows, and what they mean."""

    name: str
    experiment: Experiment
    rows: tuple[Row, ...]
    advantages: tuple[Advantage, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def cases(self) -> list[Case]:
        return list(dict.fromkeys(row.case for row in self.rows))

    def of(self, case: Case) -> list[Row]:
        return [row for row in self.rows if row.case == case]

    def sentences(self, case: Case) -> list[str]:
        """Returns what a case comes to."""
        eaten = [one.text for one in self.advantages if one.case == case]
        timed = [f"Accuracy on {named(row)}: {row.reached.text}." for row in self.of(case) if row.reached]
        return [line[:1].upper() + line[1:] for line in (*eaten, *recommend(self.of(case)), *timed)]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.experiment.title,
            "cases": [case.name for case in self.cases],
            "advantages": [one.to_dict() for one in self.advantages],
            "published": [one.to_dict() for one in self.comparisons],
            "sentences": {case.name: self.sentences(case) for case in self.cases},
        }


def findings_of(name: str, experiment: Experiment, rows: Sequence[Row]) -> Findings:
    """Returns what an experiment came to."""
    here = tuple(row for case in experiment.cases for row in rows if row.case == case)
    return Findings(
        name=name,
        experiment=experiment,
        rows=here,
        advantages=advantages(here),
        comparisons=tuple(one for claim in experiment.claims for one in compare(claim, here)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of a sweep, on one device; `advantage` over the CPU where that was measured, too."""

    value: Value
    row: Row
    advantage: Advantage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """One sweep of one case on one device, the points in the order of the values."""

    experiment: str
    axis: str
    base: Case
    device: Device
    points: tuple[Point, ...]

    @property
    def label(self) -> str:
        """What tells it from others beside it."""
        backend = f" ({self.points[0].row.backend})" if self.device.kind == "gpu" else ""
        return f"{self.base.feed} on {self.device.name}{backend}"

    @property
    def sentences(self) -> list[str]:
        """Returns what the device has over the CPU, value by value."""
        return [f"{self.axis} {one.value}: {one.advantage.text}" for one in self.points if one.advantage is not None]

    def to_dict(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "axis": self.axis,
            "base": self.base.name,
            "device": self.device.name,
            "points": [
                {
                    "value": one.value,
                    "case": one.row.case.name,
                    "advantage": None if one.advantage is None else one.advantage.to_dict(),
                }
                for one in self.points
            ],
        }


def swept_of(name: str, experiment: Experiment, sweep: Sweep, rows: Sequence[Row]) -> tuple[Swept, ...]:
    """Returns what a sweep over an experiment came to, on each device."""
    found = []
    over_cpu = {(one.case, one.accelerator.device): one for one in advantages(rows)}
    for base in experiment.swept:
        for device in dict.fromkeys(row.device for row in rows):
            here = {row.case: row for row in rows if row.device == device}
            cases = [(value, sweep.case(base, value)) for value in sweep.values]
            points = tuple(
                Point(value=value, row=here[case], advantage=over_cpu.get((case, device)))
                for value, case in cases
                if isinstance(case, Case) and case in here
            )
            if points:
                found.append(Swept(experiment=name, axis=sweep.axis, base=base, device=device, points=points))
    return tuple(found)


def backend_notes(rows: Sequence[Row], missing: Sequence[str], gpu: Mapping[str, Any]) -> list[str]:
    """Returns what must be said of GPUs: on what a figure was measured, and what nobody has tried here.

    Args:
      missing: why a GPU was left out.
      gpu: what `open_backend` says of the one that was not; empty where there is none.
    """
    measured = {row.backend for row in rows if row.device.kind == "gpu"}
    lines = [f"GPU figures were measured here, with {named_backend(gpu)}."] * bool(measured)
    if not measured:
        why = f" ({'; '.join(missing)})" if missing else ""
        lines.append(f"No GPU was measured{why}: the CPU stands beside nothing that computes.")
    if "tensorflow" not in measured:
        lines.append("TensorFlow on a GPU: untested by this run.")
    if any(row.device.kind == "emulated" for row in rows):
        lines.append("An emulated accelerator sleeps for as long as its rate says: it computes and learns nothing.")
    return lines
