"""What the figures mean: the GPU's advantage and what loading takes of it, published against measured, which to choose.

Pure: rows in; out come findings, and each experiment or sweep with the rows and findings that belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.devices.experiments import Case, Claim, Experiment
from benchmarks.devices.plan import Sweep, Value
from benchmarks.devices.results import CaseResult
from benchmarks.lab.backend import named_backend
from profiles import Device
from profiles.results import INPUT_FROM
from profiles.statistics import ratio_interval

# A loss of advantage smaller than this is within what rounds differ by on a shared machine.
_LOST_RATIO = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantage:
    """How much faster an accelerator is than the CPU with the same case. Intervals 95 %, over rounds side by side.

    Attributes:
      train_ratio: of the rates of training as it ran, loading and all, edges of epochs too.
      compute_ratio: of the models alone; None where they could not be seen alone.
    """

    case: Case
    cpu: CaseResult
    accelerator: CaseResult
    train_ratio: float
    train_ci95: tuple[float, float] | None
    compute_ratio: float | None
    compute_ci95: tuple[float, float] | None

    @property
    def lost_ratio(self) -> float | None:
        """Share of the advantage in computing that training does not have; negative where loading helps it."""
        return None if self.compute_ratio is None else 1 - self.train_ratio / self.compute_ratio

    @property
    def text(self) -> str:
        """One sentence that answers: how much of the advantage did loading eat?"""
        name = named(self.accelerator)
        if self.compute_ratio is None or self.lost_ratio is None:
            return f"{name} trains {times(self.train_ratio)} as fast as {named(self.cpu)}; its steps cannot be split."
        sides = ", ".join(f"{row.device.name} {row.loading_ratio:.0%}" for row in (self.cpu, self.accelerator))
        computes = f"{name} computes {times(self.compute_ratio)} as fast as {named(self.cpu)}"
        trains = f"trains {times(self.train_ratio)} as fast"
        if self.lost_ratio > _LOST_RATIO:
            said = f"loading eats {self.lost_ratio:.0%} of the advantage"
        elif self.lost_ratio < -_LOST_RATIO:
            said = "loading costs the CPU more than the accelerator"
        else:
            said = "loading takes nothing of the advantage that could be seen"
        return f"{computes} and {trains}: {said} (loading: {sides})."

    def to_dict(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "cpu": self.cpu.device.name,
            "accelerator": self.accelerator.device.name,
            "accelerator_backend": self.accelerator.backend,
            "train_ratio": self.train_ratio,
            "train_ratio_ci95": None if self.train_ci95 is None else list(self.train_ci95),
            "compute_ratio": self.compute_ratio,
            "compute_ratio_ci95": None if self.compute_ci95 is None else list(self.compute_ci95),
            "lost_ratio": self.lost_ratio,
            "text": self.text,
        }


def named(row: CaseResult) -> str:
    """Returns a device as sentences call it; a GPU never without the backend that it was measured on."""
    if row.device.kind == "gpu":
        return f"the GPU ({row.backend})"
    return "the CPU" if row.device.kind == "cpu" else f"the accelerator {row.device.name}"


def times(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


def advantages(rows: Sequence[CaseResult]) -> tuple[Advantage, ...]:
    """Returns every accelerator against the CPU, case by case."""
    cpus = {row.case: row for row in rows if row.device.kind == "cpu"}
    return tuple(_advantage(cpus[row.case], row) for row in rows if row.device.kind != "cpu" and row.case in cpus)


def _advantage(cpu: CaseResult, other: CaseResult) -> Advantage:
    train, train_ci95 = _rounds_ratio(cpu, other, "train")
    compute: float | None = None
    compute_ci95 = None
    if cpu.result is not None and other.result is not None:
        compute, compute_ci95 = _rounds_ratio(cpu, other, "resident")
    return Advantage(
        case=cpu.case,
        cpu=cpu,
        accelerator=other,
        train_ratio=train,
        train_ci95=train_ci95,
        compute_ratio=compute,
        compute_ci95=compute_ci95,
    )


def _rounds_ratio(cpu: CaseResult, other: CaseResult, window: str) -> tuple[float, tuple[float, float] | None]:
    """Returns how much faster the other is in a window, over the rounds that both have, and its interval."""
    if cpu.result is None or other.result is None:
        return other.images_per_sec / cpu.images_per_sec, None
    if window == "train":
        slow, fast = cpu.result.by_round(), other.result.by_round()
    else:
        slow, fast = ({one.round: 1 / one.s_per_image for one in row.of(window)} for row in (cpu.result, other.result))
    common = sorted(slow.keys() & fast.keys())
    if not common:
        return other.images_per_sec / cpu.images_per_sec, None
    return ratio_interval([fast[one] for one in common], [slow[one] for one in common])


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A published figure beside ours.

    Attributes:
      measured: the least and the most of it here; None where it was not measured.
      on: the device of ours; None likewise.
      note: why not, or what a reader must know.
    """

    claim: Claim
    measured: tuple[float, float] | None
    on: str | None
    note: str | None

    @property
    def text(self) -> str:
        """The measured figure, in the words of the published one."""
        if self.measured is None:
            return "-"
        low, high = (float(f"{value:.3g}") for value in self.measured)
        return replace(self.claim.figure, low=low, high=high).text

    def to_dict(self) -> dict[str, Any]:
        figure = self.claim.figure
        return {
            "published": asdict(figure) | {"text": figure.text},
            "cases": [case.name for case in self.claim.cases],
            "against": None if self.claim.against is None else self.claim.against.name,
            "measured": None if self.measured is None else list(self.measured),
            "measured_text": self.text,
            "on": self.on,
            "note": self.note,
        }


def compare(claim: Claim, rows: Sequence[CaseResult]) -> tuple[Comparison, ...]:
    """Holds a published figure against what was measured, on each device that it is about."""
    accelerators = list(dict.fromkeys(row.device for row in rows if row.device.kind != "cpu"))
    cpus = list(dict.fromkeys(row.device for row in rows if row.device.kind == "cpu"))
    if claim.figure.quantity == "speed_up":
        devices = accelerators
    else:
        devices = [*cpus * ("cpu" in claim.kinds), *accelerators * ("accelerator" in claim.kinds)]
    found = [one for device in devices if (one := _comparison(claim, rows, device)) is not None]
    return tuple(found) or (Comparison(claim=claim, measured=None, on=None, note="not measured here"),)


def _comparison(claim: Claim, rows: Sequence[CaseResult], device: Any) -> Comparison | None:
    here = {row.case: row for row in rows if row.device == device}
    cpu = {row.case: row for row in rows if row.device.kind == "cpu"}
    numbers: list[float] = []
    notes: dict[str, None] = {}
    for case in claim.cases:
        if case in here:
            number = _QUANTITIES[claim.figure.quantity](here[case], cpu.get(case), here.get(claim.against or case))
            if number is not None:
                numbers.append(number)
                if claim.figure.quantity == "train_s" and here[case].training.extrapolated:
                    notes[f"extrapolated {here[case].training.extrapolated}"] = None
    if not numbers:
        return None
    row = next(iter(here.values()))
    if device.kind == "emulated":
        notes["emulated: it computes nothing"] = None
    return Comparison(
        claim=claim,
        measured=(min(numbers), max(numbers)),
        on=device.name if device.kind != "gpu" else f"gpu ({row.backend})",
        note="; ".join(notes) or None,
    )


# How each published quantity is read from a row, that of the CPU with the same case, and that of the case that a ratio
# is over, on the same device.
_QUANTITIES: dict[str, Callable[[CaseResult, CaseResult | None, CaseResult | None], float | None]] = {
    "train_s": lambda row, cpu, against: row.training.seconds,
    "images_per_sec": lambda row, cpu, against: row.images_per_sec,
    "speed_up": lambda row, cpu, against: None if cpu is None else _advantage(cpu, row).train_ratio,
    "rate_ratio": lambda row, cpu, against: None if against is None else row.images_per_sec / against.images_per_sec,
    "gpu_ratio": lambda row, cpu, against: row.use["train"].gpu_ratio if row.device.kind == "gpu" else None,
    "cpu_ratio": lambda row, cpu, against: row.use["train"].cpu_ratio,
}


def recommend(rows: Sequence[CaseResult]) -> list[str]:
    """Returns which device to choose for one case, from its rows on all devices, and what to do first."""
    if len(rows) < 2:
        return [f"Only {named(row)} was measured: there is nothing to choose from." for row in rows]
    fastest = min(rows, key=lambda row: row.epoch.seconds)
    slowest = max(rows, key=lambda row: row.epoch.seconds)
    lines = [
        f"Fastest: {named(fastest)}, {seconds_text(fastest.epoch.seconds)} an epoch against "
        f"{seconds_text(slowest.epoch.seconds)} on {named(slowest)}."
    ]
    priced = [row for row in rows if row.cost_per_epoch is not None]
    if len(priced) > 1:
        cheapest = min(priced, key=lambda row: row.cost_per_epoch or 0.0)
        costs = ", ".join(f"{row.device.name} {cost_text(row.cost_per_epoch or 0.0)}" for row in priced)
        lines.append(f"Cheapest per epoch at the prices given: {named(cheapest)} ({costs}).")
    for row in rows:
        if row.device.kind != "cpu" and row.loading_ratio is not None and row.loading_ratio >= INPUT_FROM:
            lines.append(
                f"Before paying for more of {named(row)}: {row.loading_ratio:.0%} of its time is loading. "
                "A faster input pipeline comes first (python -m benchmarks.tune)."
            )
    return lines


def seconds_text(seconds: float) -> str:
    """Returns a duration for people."""
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2g} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def cost_text(cost: float) -> str:
    return f"{cost:.2f}" if cost >= 0.1 else f"{cost:.2g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """One experiment's rows, and what they mean."""

    name: str
    experiment: Experiment
    rows: tuple[CaseResult, ...]
    advantages: tuple[Advantage, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def cases(self) -> list[Case]:
        return list(dict.fromkeys(row.case for row in self.rows))

    def of(self, case: Case) -> list[CaseResult]:
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


def findings_of(name: str, experiment: Experiment, rows: Sequence[CaseResult]) -> Findings:
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
    row: CaseResult
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


def swept_of(name: str, experiment: Experiment, sweep: Sweep, rows: Sequence[CaseResult]) -> tuple[Swept, ...]:
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


def backend_notes(rows: Sequence[CaseResult], missing: Sequence[str], gpu: Mapping[str, Any]) -> list[str]:
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
