"""A recorded benchmark: ratios to anchors, not rates; and what a later measurement says against it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from profiles.gate.decision import (
    IMPROVED,
    NOT_COMPARABLE,
    PAIRS,
    REGRESSION,
    Claims,
    Decision,
    Look,
    change,
    decision_at,
    figures_of,
    plan,
    rate_of,
    share_out,
)
from profiles.gate.evidence import Unpaired, log_ratios
from profiles.gate.invariants import Invariants, differences

# Each a fresh process. 10: with 6 new ones, ranks then reach p = 0.0001, and every look can say something.
RECORDED = 10
# Wider than for what is measured side by side: between then and now lie other neighbours, and anchors that share only
# part of what the benchmark does. Source: aprender's CI, which gates ratios at 10 %.
THRESHOLD_RATIO = 0.10
# Below this part of the recorded images/sec nothing is called the machine's hour any more: 1 / 2.5, as in aprender's
# CI; shared machines are known to swing by 11 to 30 % (NVIDIA/warp, issue 1142).
FLOOR_RATIO = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one process, or one round, came to.

    Attributes:
      images_per_sec: of the benchmark, by figure.
      anchors: rates of the anchors beside it, by name.
    """

    images_per_sec: Mapping[str, float]
    anchors: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One figure of a baseline.

    Attributes:
      ratios: images/sec over each anchor's rate, one number a process.
      judge: the anchor whose ratio varied least; chosen when recording, so that no check can pick.
      images_per_sec: the median, and the floor below which no hour of the machine explains it.
    """

    ratios: Mapping[str, tuple[float, ...]]
    judge: str
    images_per_sec: float
    floor_images_per_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What was recorded.

    Attributes:
      subject: what was measured, as the user called it.
      measure: what the rates are of: "loader", "train NETWORK on DEVICE", or a test's own.
      figures: by name.
      machine: what must be the same; no names of hosts, users or folders.
      dataset: what it is and its fingerprint; None where the benchmark's own code knows.
    """

    subject: str
    measure: str
    figures: Mapping[str, Recorded]
    invariants: Invariants
    machine: Mapping[str, Any]
    dataset: Mapping[str, Any] | None


def recorded(
    measured: list[Measured],
    *,
    subject: str,
    measure: str,
    invariants: Invariants,
    machine: Mapping[str, Any],
    dataset: Mapping[str, Any] | None,
) -> Baseline:
    """Makes a baseline of what was measured.

    Raises:
      ValueError: at a rate that is not a number above 0.
    """
    return Baseline(
        subject=subject,
        measure=measure,
        figures={name: _recorded(measured, name) for name in figures_of(*(one.images_per_sec for one in measured))},
        invariants=invariants,
        machine=machine,
        dataset=dataset,
    )


def _recorded(measured: Sequence[Measured], figure: str) -> Recorded:
    logs = {name: _log_ratios(measured, figure, name) for name in measured[0].anchors}
    median = _median(measured, figure)
    return Recorded(
        ratios={name: tuple(float(value) for value in np.exp(values)) for name, values in logs.items()},
        judge=min(logs, key=lambda name: float(np.subtract(*np.percentile(logs[name], [75, 25])))),
        images_per_sec=median,
        floor_images_per_sec=FLOOR_RATIO * median,
    )


def _log_ratios(measured: Sequence[Measured], figure: str, anchor: str) -> np.ndarray:
    rates = [rate_of(one.images_per_sec, figure) for one in measured]
    return log_ratios(rates, [one.anchors[anchor] for one in measured])


def _median(measured: Sequence[Measured], figure: str) -> float:
    return float(np.median([rate_of(one.images_per_sec, figure) for one in measured]))


def looks() -> tuple[Look, ...]:
    """Returns when a check may look: its ranks reach small p-values with fewer runs than pairs do."""
    return plan(lambda now: Unpaired.least_p(now, RECORDED), PAIRS[:-1])


def not_comparable(
    baseline: Baseline,
    *,
    subject: str,
    measure: str,
    machine: Mapping[str, Any],
    dataset: Mapping[str, Any] | None,
) -> Decision | None:
    """Returns the verdict where another thing is measured, elsewhere or on other data; None where it is the same."""
    what = {"subject": baseline.subject, "measure": baseline.measure}
    found = _changed("", {**what, **baseline.machine}, {"subject": subject, "measure": measure, **machine})
    found += _changed("dataset ", baseline.dataset or {}, dataset or {})
    return Decision(verdict=NOT_COMPARABLE, reason="; ".join(found)) if found else None


def broken(baseline: Baseline, now: Invariants) -> Decision | None:
    """Returns the verdict where something without noise is not as recorded."""
    found = differences(baseline.invariants, now)
    return Decision(verdict=REGRESSION, reason="; ".join(found)) if found else None


def check(baseline: Baseline, measured: list[Measured], look: Look, *, threshold: float, last: bool) -> Decision | None:
    """Compares what was measured with what was recorded; None where more is to be measured.

    Of each figure the judge decides. A change that another anchor contradicts is none of the code's for certain: where
    one anchor moved and not the code, the ratio to it moved, and that to another did not.

    Raises:
      ValueError: at a rate that is not a number above 0.
    """
    evidence: dict[str, Unpaired] = {}
    claims: dict[str, Claims] = {}
    reasons: dict[str, str] = {}
    for name, before in baseline.figures.items():
        ratios = {
            anchor: Unpaired(_log_ratios(measured, name, anchor), np.log(then))
            for anchor, then in before.ratios.items()
        }
        evidence[name] = ratios[before.judge]
        own = change(evidence[name], share_out(look, len(baseline.figures)), threshold)
        medians = {anchor: float(one.median) for anchor, one in ratios.items()}
        below = _median(measured, name) < before.floor_images_per_sec
        claims[name], reasons[name] = _held_against_all(own, medians, before if below else None, threshold)
    made = decision_at(evidence, claims, look, last=last)
    return made and replace(made, reason=reasons[made.figure])


def _held_against_all(
    claims: Claims, medians: Mapping[str, float], below: Recorded | None, threshold: float
) -> tuple[Claims, str]:
    """Returns what a figure shows in the light of all anchors, and the reason where that is not what its judge says.

    Args:
      medians: of the log-ratio to each anchor, over what was recorded.
      below: what was recorded, where the plain rate lies below its floor.
    """
    loss = math.log1p(-threshold)
    none = np.asarray(False)
    if below is not None and max(medians.values()) < loss:
        regression = Claims(regression=~none, improved=none, same=none)
        return regression, f"fewer than {below.floor_images_per_sec:,.0f} images/sec, the floor"
    verdict = claims.verdict()
    sign = {REGRESSION: 1, IMPROVED: -1}.get(verdict or "", 0)
    if not sign or all(sign * value < loss for value in medians.values()):
        return claims, ""
    ratios = ", ".join(f"{math.exp(value):.2f} against {name}" for name, value in medians.items())
    return Claims(regression=none, improved=none, same=none), f"the anchors disagree: {ratios}"


def machine_of(provenance: Mapping[str, Any], backend: str, gpus: Sequence[str]) -> dict[str, Any]:
    """Returns what must be the same for ratios to mean the same.

    Memory in whole gigabytes: what the kernel keeps for itself differs from boot to boot.

    Args:
      provenance: of `profiles.provenance.machine`.
      backend: Keras' own, in the process that measures.
      gpus: the names of those that it sees.
    """
    packages = ["tensorflow", "keras", "numpy", "opencv-python-headless", "pillow", "albumentations"]
    packages += [backend] if backend not in packages else []
    return {
        "cpu": provenance["cpu"],
        "usable_cores": provenance["usable_cores"],
        "memory_gb": round(provenance["memory_bytes"] / 2**30),
        "keras_backend": backend,
        "gpus": list(gpus),
        "platform": provenance["platform"],
        "python": provenance["python"],
        **{name: provenance["packages"].get(name, "unknown") for name in packages},
    }


def _changed(what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{what}{key}: {before.get(key, 'unknown')} -> {now.get(key, 'unknown')}"
        for key in dict.fromkeys([*before, *now])
        if before.get(key, "unknown") != now.get(key, "unknown")
    ]
