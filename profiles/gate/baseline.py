"""Baselines: a benchmark's rate, recorded as ratios to the rates of anchors, and later measurements held against it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from unstall.profiles.gate.decision import (
    ELSEWHERE,
    Claims,
    Decision,
    Lack,
    Look,
    change,
    decision_at,
    figures_of,
    pairs_to,
    plan,
    rate_of,
    share_out,
)
from unstall.profiles.gate.invariants import Invariants, structure_differences, work_differences
from unstall.profiles.gate.lacks import with_lack
from unstall.profiles.gate.log_ratios import Unpaired, log_ratios
from unstall.profiles.gate.verdicts import IMPROVED, NOT_COMPARABLE, REGRESSION
from unstall.profiles.text import rate_text

# How a benchmark is read, in words: the values of `Feed.reading`.
WAYS = {"fit": "Keras' fit", "loop": "a plain loop", "calls": "calling it"}
# Measurements in a baseline, each of a fresh process. With 10 of them and 6 new ones, the test by ranks can reach
# p = 0.0001, so that even the first look of a check can say "same".
RECORDED = 10
# New measurements at most, of which a quiet machine needs 6 or 10. With the error split over the looks up to 60, checks
# of unchanged code on a machine that has become busy keep it too; up to 38, at a spread of 30 %, 1.8 % of simulated
# checks were false alarms.
MOST_PROCESSES = 60
# Wider than the threshold for what is measured side by side: since the recording, other programs may have come to share
# the machine, and an anchor does only part of the work that the benchmark does. Source: aprender's CI, which gates
# ratios at 10 %.
THRESHOLD_RATIO = 0.10
# A rate below this part of the recorded images/sec is not explained by a slower machine any more: 1 / 2.5, as in
# aprender's CI; shared machines are known to swing by 11 to 30 % (NVIDIA/warp, issue 1142).
FLOOR_RATIO = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRates:
    """The rates that one process, or one round, measured.

    Attributes:
      images_per_sec: of the benchmark, by figure.
      anchors: rates of the anchors that were measured beside the benchmark, by name.
    """

    images_per_sec: Mapping[str, float]
    anchors: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFigure:
    """One figure of a baseline.

    Attributes:
      ratios: images/sec over each anchor's rate, one number a process.
      judge: the anchor whose ratio varied least. It is chosen at the recording, so that no later check can choose the
        anchor that suits its result.
      images_per_sec: the median.
      floor_images_per_sec: a lower rate is not explained by a slower machine.
    """

    ratios: Mapping[str, tuple[float, ...]]
    judge: str
    images_per_sec: float
    floor_images_per_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What was recorded of one benchmark.

    Attributes:
      subject: what was measured, as the user called it.
      measure: the kind of rate: "loader", "train NETWORK on DEVICE", or "pytest" for a test.
      figures: by name.
      machine: what of the machine must be the same at a check; no names of hosts, users or folders.
      dataset: the data's description and fingerprint; None where the benchmark's own code reads its data.
      reading: how the benchmark was read, a `Feed.reading`: the rates of two ways cannot be compared.
    """

    subject: str
    measure: str
    reading: str
    figures: Mapping[str, RecordedFigure]
    invariants: Invariants
    machine: Mapping[str, Any]
    dataset: Mapping[str, Any] | None


def new_baseline(
    measured: list[MeasuredRates],
    *,
    subject: str,
    measure: str,
    reading: str,
    invariants: Invariants,
    machine: Mapping[str, Any],
    dataset: Mapping[str, Any] | None,
) -> Baseline:
    """Makes a baseline of these measurements.

    Raises:
      ValueError: at a rate that is not a number above 0.
    """
    return Baseline(
        subject=subject,
        measure=measure,
        reading=reading,
        figures={name: _recorded(measured, name) for name in figures_of(*(rates.images_per_sec for rates in measured))},
        invariants=invariants,
        machine=machine,
        dataset=dataset,
    )


def _recorded(measured: Sequence[MeasuredRates], figure: str) -> RecordedFigure:
    logs = {name: _log_ratios(measured, figure, name) for name in measured[0].anchors}
    median = _median(measured, figure)
    return RecordedFigure(
        ratios={name: tuple(float(value) for value in np.exp(values)) for name, values in logs.items()},
        judge=min(logs, key=lambda name: float(np.subtract(*np.percentile(logs[name], [75, 25])))),
        images_per_sec=median,
        floor_images_per_sec=FLOOR_RATIO * median,
    )


def _log_ratios(measured: Sequence[MeasuredRates], figure: str, anchor: str) -> np.ndarray:
    numerators = [rate_of(rates.images_per_sec, figure) for rates in measured]
    return log_ratios(numerators, [rates.anchors[anchor] for rates in measured])


def _median(measured: Sequence[MeasuredRates], figure: str) -> float:
    return float(np.median([rate_of(rates.images_per_sec, figure) for rates in measured]))


def looks(most: float) -> tuple[Look, ...]:
    """Returns the looks of a check that ends after `most` measurements."""
    return plan(lambda now: Unpaired.least_p(now, RECORDED), pairs_to(most))


def not_comparable(
    baseline: Baseline,
    *,
    subject: str,
    measure: str,
    machine: Mapping[str, Any],
    dataset: Mapping[str, Any] | None,
) -> Decision | None:
    """Returns "not comparable" where the subject, the machine or the data are not those of the baseline; else None."""
    before = {"subject": baseline.subject, "measure": baseline.measure, **baseline.machine}
    changes = _changes("", before, {"subject": subject, "measure": measure, **machine})
    changes += _changes("dataset ", baseline.dataset or {}, dataset or {})
    if not changes:
        return None
    return Decision(verdict=NOT_COMPARABLE, reason="; ".join(changes), lack=Lack(cause=ELSEWHERE))


def not_comparable_here(baseline: Baseline, reading: str, anchors: Collection[str]) -> Decision | None:
    """Returns "not comparable" where the benchmark was recorded in another way than it is measured now; else None.

    Args:
      reading: how it is read now, a `Feed.reading`.
      anchors: the names of those that can be measured now.
    """
    recorded = dict.fromkeys(name for figure in baseline.figures.values() for name in figure.ratios)
    absent = [name for name in recorded if name not in anchors]
    if absent:
        reason = f"recorded against the anchor {' and '.join(absent)}, which cannot run here"
    elif reading != baseline.reading:
        reason = f"read by {WAYS[baseline.reading]} when recorded, and by {WAYS[reading]} now"
    else:
        return None
    return Decision(verdict=NOT_COMPARABLE, reason=reason, lack=Lack(cause=ELSEWHERE))


def judge_invariants(baseline: Baseline, now: Invariants) -> Decision | None:
    """Returns "regression" where the loader's work differs from the recorded one; else None."""
    changes = work_differences(baseline.invariants, now)
    return Decision(verdict=REGRESSION, reason="; ".join(changes)) if changes else None


def structure_note(baseline: Baseline, now: Invariants) -> str:
    """Returns how the stages differ from the recorded ones: a note next to the verdict, since it is no evidence."""
    return "; ".join(structure_differences(baseline.invariants, now))


def check(
    baseline: Baseline, measured: list[MeasuredRates], look: Look, *, threshold: float, last: bool
) -> Decision | None:
    """Compares what was measured with what was recorded; returns None where more is to be measured.

    Each figure is judged by its ratio to one anchor, the baseline's `judge`. A change that the ratio to another anchor
    does not show may be a change of the judging anchor and not of the code: then nothing is claimed.

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
        medians = {anchor: float(ratio.median) for anchor, ratio in ratios.items()}
        below = _median(measured, name) < before.floor_images_per_sec
        claims[name], reasons[name] = _held_against_all(own, medians, before if below else None, threshold)
    decision = decision_at(evidence, claims, look, last=last)
    decision = decision and replace(decision, reason=reasons[decision.figure])
    return with_lack(decision, evidence, partial(change, threshold=threshold))


def _held_against_all(
    claims: Claims, medians: Mapping[str, float], below: RecordedFigure | None, threshold: float
) -> tuple[Claims, str]:
    """Returns the claims about a figure that all anchors support, and why, where these are not the judging anchor's.

    Args:
      claims: by the ratio to the judging anchor alone.
      medians: the median change of the log-ratio to each anchor since the recording.
      below: the recorded figure, where the rate lies below its floor; else None.
    """
    loss = math.log1p(-threshold)
    none = np.asarray(False)
    if below is not None and max(medians.values()) < loss:
        regression = Claims(regression=~none, improved=none, same=none)
        recorded = f"{rate_text(below.floor_images_per_sec)}, the floor, {rate_text(below.images_per_sec)} recorded"
        return regression, f"fewer images/sec than {recorded}"
    verdict = claims.verdict()
    sign = {REGRESSION: 1, IMPROVED: -1}.get(verdict or "", 0)
    if not sign or all(sign * value < loss for value in medians.values()):
        return claims, ""
    ratios = ", ".join(f"{math.exp(value):.2f} against {name}" for name, value in medians.items())
    return Claims(regression=none, improved=none, same=none), f"the anchors disagree: {ratios}"


def machine_of(provenance: Mapping[str, Any], backend: str, gpus: Sequence[str]) -> dict[str, Any]:
    """Returns what of a machine must be the same for ratios to be comparable.

    Memory is rounded to whole gigabytes: how much of it the kernel keeps for itself differs from boot to boot.

    Args:
      provenance: what `profiles.provenance.machine` returned.
      backend: Keras' backend in the process that measures; "none" where Keras cannot be imported.
      gpus: the names of the GPUs that this process sees.
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


def _changes(prefix: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{prefix}{key}: {before.get(key, 'unknown')} -> {now.get(key, 'unknown')}"
        for key in dict.fromkeys([*before, *now])
        if before.get(key, "unknown") != now.get(key, "unknown")
    ]
