"""A recorded benchmark: ratios to anchors, not rates; and what a later measurement says against it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.evidence_of_change import Unpaired
from profiles.gate_verdict import (
    IMPROVED,
    INCONCLUSIVE,
    NOT_COMPARABLE,
    REGRESSION,
    Decision,
    change,
    decision,
    log_ratios,
)
from profiles.invariants import Invariants, differences
from profiles.looks import PAIRS, Look, plan

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
      images_per_sec: of the benchmark.
      anchors: rates of the anchors beside it, by name.
    """

    images_per_sec: float
    anchors: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What was recorded.

    Attributes:
      subject: what was measured, as the user called it.
      measure: what the rate is of: "loader", "train NETWORK on DEVICE", or a test's own.
      ratios: images/sec over each anchor's rate, one number a process.
      judge: the anchor whose ratio varied least; chosen when recording, so that no check can pick.
      images_per_sec: the median, and the floor below which no hour of the machine explains it.
      machine: what must be the same; no names of hosts, users or folders.
      dataset: what it is and its fingerprint; None where the benchmark's own code knows.
    """

    subject: str
    measure: str
    ratios: Mapping[str, tuple[float, ...]]
    judge: str
    images_per_sec: float
    floor_images_per_sec: float
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
    logs = {
        name: log_ratios([one.images_per_sec for one in measured], [one.anchors[name] for one in measured])
        for name in measured[0].anchors
    }
    median = float(np.median([one.images_per_sec for one in measured]))
    return Baseline(
        subject=subject,
        measure=measure,
        ratios={name: tuple(float(value) for value in np.exp(values)) for name, values in logs.items()},
        judge=min(logs, key=lambda name: float(np.subtract(*np.percentile(logs[name], [75, 25])))),
        images_per_sec=median,
        floor_images_per_sec=FLOOR_RATIO * median,
        invariants=invariants,
        machine=machine,
        dataset=dataset,
    )


def looks(baseline: Baseline) -> tuple[Look, ...]:
    """Returns when a check may look: its ranks reach small p-values with fewer runs than pairs do."""
    count = len(next(iter(baseline.ratios.values())))
    return plan(lambda now: Unpaired.least_p(now, count), PAIRS[:-1])


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

    The judge decides. A change that another anchor contradicts is none of the code's for certain: where one anchor
    moved and not the code, the ratio to it moved, and that to another did not.

    Raises:
      ValueError: at a rate that is not a number above 0.
    """
    rates = [one.images_per_sec for one in measured]
    evidence = {
        name: Unpaired(log_ratios(rates, [one.anchors[name] for one in measured]), np.log(ratios))
        for name, ratios in baseline.ratios.items()
    }
    judge = evidence[baseline.judge]
    made = decision(judge, look, change(judge, look, threshold), last=last)
    medians = {name: float(one.median) for name, one in evidence.items()}
    loss = math.log1p(-threshold)
    if float(np.median(rates)) < baseline.floor_images_per_sec and max(medians.values()) < loss:
        shown = decision(judge, look, change(judge, look, threshold), last=True)
        assert shown is not None
        return _with(shown, REGRESSION, f"fewer than {baseline.floor_images_per_sec:,.0f} images/sec, the floor")
    if made is None or made.verdict not in (REGRESSION, IMPROVED):
        return made
    sign = 1 if made.verdict == REGRESSION else -1
    against = [name for name, value in medians.items() if sign * value >= loss]
    if not against:
        return made
    ratios = ", ".join(f"{math.exp(medians[name]):.2f} against {name}" for name in medians)
    return _with(made, INCONCLUSIVE, f"the anchors disagree: {ratios}") if last else None


def _with(made: Decision, verdict: str, reason: str) -> Decision:
    return Decision(
        verdict=verdict, ratio=made.ratio, interval=made.interval, share=made.share, pairs=made.pairs, reason=reason
    )


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
