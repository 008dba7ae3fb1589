"""Says what the figures mean: how much of the GPU's advantage loading takes, how our figures compare with the published
ones, and which device to choose.

Pure functions: case results in; findings out, for each experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from unstall.benchmarks.devices.experiments import Case, Claim, Experiment
from unstall.benchmarks.devices.results import CaseResult
from unstall.benchmarks.lab.backend import named_backend
from unstall.profiles.results import INPUT_FROM
from unstall.profiles.statistics import shared_ratio

# A smaller loss of advantage is ignored: rounds on a shared machine differ by as much.
_LOST_RATIO = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantage:
    """How much faster an accelerator is than the CPU with the same case, with 95 % intervals over rounds.

    Attributes:
      train_ratio: the ratio of the rates of whole training: loading and the edges of epochs included.
      compute_ratio: the ratio of the rates of the model alone; None where single steps cannot be timed.
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
        """The share of the computing advantage that training lacks; negative where training has a larger one."""
        return None if self.compute_ratio is None else 1 - self.train_ratio / self.compute_ratio

    @property
    def text(self) -> str:
        """A sentence: how much of the advantage loading takes."""
        name = named(self.accelerator)
        if self.compute_ratio is None or self.lost_ratio is None:
            return f"{name} trains {times(self.train_ratio)} as fast as {named(self.cpu)}; its steps cannot be split."
        sides = ", ".join(f"{result.device.name} {result.loading_ratio:.0%}" for result in (self.cpu, self.accelerator))
        computes = f"{name} computes {times(self.compute_ratio)} as fast as {named(self.cpu)}"
        trains = f"trains {times(self.train_ratio)} as fast"
        if self.lost_ratio > _LOST_RATIO:
            loss = f"loading takes {self.lost_ratio:.0%} of the advantage"
        elif self.lost_ratio < -_LOST_RATIO:
            loss = "loading costs the CPU more than the accelerator"
        else:
            loss = "loading takes nothing of the advantage that could be seen"
        return f"{computes} and {trains}: {loss} (loading: {sides})."

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


def named(result: CaseResult) -> str:
    """Returns a device as sentences call it; a GPU always with the backend on which it was measured."""
    if result.device.kind == "gpu":
        return f"the GPU ({result.backend})"
    return "the CPU" if result.device.kind == "cpu" else f"the accelerator {result.device.name}"


def times(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


def advantages(results: Sequence[CaseResult]) -> tuple[Advantage, ...]:
    """Returns each accelerator against the CPU, case by case."""
    cpus = {result.case: result for result in results if result.device.kind == "cpu"}
    others = [result for result in results if result.device.kind != "cpu" and result.case in cpus]
    return tuple(_advantage(cpus[other.case], other) for other in others)


def _advantage(cpu: CaseResult, other: CaseResult) -> Advantage:
    train, train_ci95 = _rounds_ratio(cpu, other, "train")
    compute: float | None = None
    compute_ci95 = None
    if cpu.timing is not None and other.timing is not None:
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
    """Returns the ratio of the other device's rate in a window to the CPU's, over common rounds, and its interval."""
    if cpu.timing is None or other.timing is None:
        return other.images_per_sec / cpu.images_per_sec, None
    if window == "train":
        slow, fast = cpu.timing.by_round(), other.timing.by_round()
    else:
        slow, fast = (
            {sample.round: 1 / sample.s_per_image for sample in timing.of(window)}
            for timing in (cpu.timing, other.timing)
        )
    ratio, interval = shared_ratio(fast, slow)
    return (other.images_per_sec / cpu.images_per_sec, None) if ratio is None else (ratio, interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A published figure beside ours.

    Attributes:
      measured: the smallest and the largest figure here; None where it was not measured.
      on: our device; None where the figure was not measured.
      note: why the figure was not measured, or what a reader must know.
    """

    claim: Claim
    measured: tuple[float, float] | None
    on: str | None
    note: str | None

    @property
    def text(self) -> str:
        """The measured figure, in the words of the published figure."""
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


def compare(claim: Claim, results: Sequence[CaseResult]) -> tuple[Comparison, ...]:
    """Compares a published figure with what was measured, on each device that the figure is about."""
    accelerators = list(dict.fromkeys(result.device for result in results if result.device.kind != "cpu"))
    cpus = list(dict.fromkeys(result.device for result in results if result.device.kind == "cpu"))
    if claim.figure.quantity == "speed_up":
        devices = accelerators
    else:
        devices = [*cpus * ("cpu" in claim.kinds), *accelerators * ("accelerator" in claim.kinds)]
    measured = (_comparison(claim, results, device) for device in devices)
    comparisons = tuple(comparison for comparison in measured if comparison is not None)
    return comparisons or (Comparison(claim=claim, measured=None, on=None, note="not measured here"),)


def _comparison(claim: Claim, results: Sequence[CaseResult], device: Any) -> Comparison | None:
    here = {result.case: result for result in results if result.device == device}
    cpu = {result.case: result for result in results if result.device.kind == "cpu"}
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
    result = next(iter(here.values()))
    if device.kind == "emulated":
        notes["emulated: it computes nothing"] = None
    return Comparison(
        claim=claim,
        measured=(min(numbers), max(numbers)),
        on=device.name if device.kind != "gpu" else f"gpu ({result.backend})",
        note="; ".join(notes) or None,
    )


# How to read each published quantity from a result, the result of the CPU with the same case, and the result, on the
# same device, of the case that a ratio is over.
_QUANTITIES: dict[str, Callable[[CaseResult, CaseResult | None, CaseResult | None], float | None]] = {
    "train_s": lambda own, cpu, against: own.training.seconds,
    "images_per_sec": lambda own, cpu, against: own.images_per_sec,
    "speed_up": lambda own, cpu, against: None if cpu is None else _advantage(cpu, own).train_ratio,
    "rate_ratio": lambda own, cpu, against: None if against is None else own.images_per_sec / against.images_per_sec,
    "gpu_ratio": lambda own, cpu, against: own.use["train"].gpu_ratio if own.device.kind == "gpu" else None,
    "cpu_ratio": lambda own, cpu, against: own.use["train"].cpu_ratio,
}


def real(results: Sequence[CaseResult]) -> list[CaseResult]:
    """Returns the results of devices that compute. An emulated one sleeps: nobody can choose it."""
    return [result for result in results if result.device.kind != "emulated"]


def fastest_text(results: Sequence[CaseResult]) -> str | None:
    """Returns the fastest of the devices that compute beside the slowest; None of fewer than two."""
    results = real(results)
    if len(results) < 2:
        return None
    fastest = min(results, key=lambda result: result.epoch.seconds)
    slowest = max(results, key=lambda result: result.epoch.seconds)
    return (
        f"{named(fastest)}, {seconds_text(fastest.epoch.seconds)} an epoch against "
        f"{seconds_text(slowest.epoch.seconds)} on {named(slowest)}."
    )


def recommend(results: Sequence[CaseResult]) -> list[str]:
    """Returns sentences: which device to choose for a case, from its results on all devices, and what to do first."""
    fastest = fastest_text(results)
    if fastest is None:
        emulated = [result for result in results if result.device.kind == "emulated"]
        beside = f" beside {named(emulated[0])}, which computes nothing" if emulated else ""
        return [
            f"Only {named(result)} was measured{beside}: there is nothing to choose from." for result in real(results)
        ]
    return [f"Fastest: {fastest}", *costs(results)]


def costs(results: Sequence[CaseResult]) -> list[str]:
    """Returns sentences: which device is the cheapest at the prices given, and which waits for its data."""
    results, lines = real(results), []
    priced = [result for result in results if result.cost_per_epoch is not None]
    if len(priced) > 1:
        cheapest = min(priced, key=lambda result: result.cost_per_epoch or 0.0)
        costs = ", ".join(f"{result.device.name} {cost_text(result.cost_per_epoch or 0.0)}" for result in priced)
        lines.append(f"Cheapest per epoch at the prices given: {named(cheapest)} ({costs}).")
    for result in results:
        if result.device.kind != "cpu" and result.loading_ratio is not None and result.loading_ratio >= INPUT_FROM:
            lines.append(
                f"Before paying for more of {named(result)}: {result.loading_ratio:.0%} of its time is loading. "
                "A faster input pipeline comes first (unstall tune)."
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
    """The results of an experiment, and what they mean."""

    name: str
    experiment: Experiment
    results: tuple[CaseResult, ...]
    advantages: tuple[Advantage, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def cases(self) -> list[Case]:
        return list(dict.fromkeys(result.case for result in self.results))

    def of(self, case: Case) -> list[CaseResult]:
        return [result for result in self.results if result.case == case]

    def sentences(self, case: Case) -> list[str]:
        """Returns the sentences on a case."""
        lost = [advantage.text for advantage in self.advantages if advantage.case == case]
        return [line[:1].upper() + line[1:] for line in (*lost, *recommend(self.of(case)), *self.accuracies(case))]

    def accuracies(self, case: Case) -> list[str]:
        """Returns when each device reached the accuracy that was asked for; nothing where none was."""
        return [f"Accuracy on {named(result)}: {result.reached.text}." for result in self.of(case) if result.reached]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.experiment.title,
            "cases": [case.name for case in self.cases],
            "advantages": [advantage.to_dict() for advantage in self.advantages],
            "published": [comparison.to_dict() for comparison in self.comparisons],
            "sentences": {case.name: self.sentences(case) for case in self.cases},
        }


def findings_of(name: str, experiment: Experiment, results: Sequence[CaseResult]) -> Findings:
    """Returns the findings of an experiment."""
    here = tuple(result for case in experiment.cases for result in results if result.case == case)
    return Findings(
        name=name,
        experiment=experiment,
        results=here,
        advantages=advantages(here),
        comparisons=tuple(comparison for claim in experiment.claims for comparison in compare(claim, here)),
    )


def backend_notes(results: Sequence[CaseResult], missing: Sequence[str], gpu: Mapping[str, Any]) -> list[str]:
    """Returns sentences on GPUs: on which backend they were measured, and which backend was not tested.

    Args:
      missing: why a GPU was left out.
      gpu: what `open_backend` returned for the GPU that was measured; empty where no GPU was measured.
    """
    measured = {result.backend for result in results if result.device.kind == "gpu"}
    lines = [f"GPU figures were measured here, with {named_backend(gpu)}."] * bool(measured)
    if not measured:
        why = f" ({'; '.join(missing)})" if missing else ""
        lines.append(f"No GPU was measured{why}: the CPU stands beside nothing that computes.")
    if "tensorflow" not in measured:
        lines.append("TensorFlow on a GPU: untested by this run.")
    if any(result.device.kind == "emulated" for result in results):
        lines.append("An emulated accelerator sleeps for as long as its rate says: it computes and learns nothing.")
    return lines
