"""A recorded benchmark: ratios to anchors, not rates; its file; and what a later measurement says against it.

The file is small JSON that people read and commit.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from profiles.gate import anchors
from profiles.gate.decision import (
    EPOCH,
    IMPROVED,
    NOT_COMPARABLE,
    PAIRS,
    REGRESSION,
    STEADY,
    Claims,
    Decision,
    Look,
    Unpaired,
    change,
    check_rates,
    decision_at,
    figures_of,
    log_ratios,
    plan,
    rate_of,
    share_out,
)
from profiles.gate.invariants import Invariants, differences, invariants_from_dict
from profiles.statistics import median_interval

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
        claims[name], reasons[name] = _excused(own, medians, before if below else None, threshold)
    made = decision_at(evidence, claims, look, last=last)
    return made and replace(made, reason=reasons[made.figure])


def _excused(
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


SCHEMA_VERSION = 3
# What follows the fourth digit of a rate is noise.
_DIGITS = 4
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
# A list of numbers, a line each, as `json` indents it.
_NUMBERS = re.compile(r"\[\n\s+([-+.0-9e,\s]+?)\n\s+\]")


class BaselineError(Exception):
    """A baseline that cannot be used or written; the message says which, why and the fix.

    Attributes:
      exit_code: 2 for what was asked wrongly, 3 for what is there and no baseline: nothing can be held against it.
    """

    def __init__(self, message: str, *, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def path_of(folder: Path, name: str) -> Path:
    """Returns the file of a benchmark.

    Raises:
      BaselineError: if the name is none.
    """
    if not _NAME.fullmatch(name):
        raise BaselineError(
            f"A benchmark's name must be letters, digits, '.', '_' and '-', 100 at most, not with a '.' first. "
            f"Received: {name!r}."
        )
    return folder / f"{name}.json"


def check_writable(path: Path, *, overwrite: bool) -> None:
    """Finds out before minutes of measuring that a baseline can be written.

    Raises:
      BaselineError: if not, or if there is one that is not to be overwritten.
    """
    if path.exists() and not overwrite:
        raise BaselineError(f"{path} is there already. Give --overwrite to record it anew.")
    folder = next(one for one in path.absolute().parents if one.exists())
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise BaselineError(f"{path} cannot be written: {error.strerror or error}.") from error


def write(baseline: Baseline, path: Path, *, overwrite: bool) -> None:
    """Writes a baseline aside and gives it its name when it is whole.

    Raises:
      BaselineError: if there is one, or it cannot be written.
    """
    text = json.dumps(_to_dict(baseline), indent=2, allow_nan=False) + "\n"
    text = _NUMBERS.sub(lambda match: "[" + " ".join(match[1].split()) + "]", text)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BaselineError(f"{path} cannot be written: {error.strerror or error}.") from error
    try:
        aside.write_text(text, encoding="utf-8")
        if overwrite:
            aside.replace(path)
        else:
            os.link(aside, path)  # fails where there is one, also one that came meanwhile
    except FileExistsError as error:
        raise BaselineError(f"{path} is there already. Give --overwrite to record it anew.") from error
    except OSError as error:
        raise BaselineError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        aside.unlink(missing_ok=True)


def read(path: Path) -> Baseline:
    """Reads a baseline.

    Raises:
      BaselineError: if it is not there, or is none.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except FileNotFoundError as error:
        raise BaselineError(f"{path} does not exist. Record it first: `gate record`.", exit_code=3) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BaselineError(f"{path} cannot be read: {reason}.", exit_code=3) from error
    try:
        return _from_dict(values)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise BaselineError(
            f"{path} is no baseline: {reason.rstrip('.')}. Record it anew: gate record --overwrite, "
            "or pytest --images-per-sec-overwrite.",
            exit_code=3,
        ) from error


def _from_dict(values: Any) -> Baseline:
    for key, version in (("schema_version", SCHEMA_VERSION), ("anchors_version", anchors.VERSION)):
        if values[key] != version:
            raise ValueError(f"`{key}` must be {version}. Received: {values[key]!r}")
    figures = {str(name): _recorded_from_dict(one) for name, one in values["figures"].items()}
    if EPOCH not in figures or not set(figures) <= {STEADY, EPOCH}:
        raise ValueError(f"`figures` must be {EPOCH}, or {STEADY} and {EPOCH}. Received: {', '.join(figures)}")
    return Baseline(
        subject=str(values["subject"]),
        measure=str(values["measure"]),
        figures=figures,
        invariants=invariants_from_dict(values["invariants"]),
        machine=_machine(values["machine"]),
        dataset=None if values["dataset"] is None else dict(values["dataset"]),
    )


def _recorded_from_dict(values: Any) -> Recorded:
    ratios = {str(name): tuple(float(value) for value in one["samples"]) for name, one in values["ratios"].items()}
    for samples in ratios.values():
        check_rates(samples)
    if not set(ratios) <= set(anchors.NAMES):
        raise ValueError(f"`ratios` must be to {', '.join(anchors.NAMES)}. Received: {', '.join(ratios)}")
    if values["judge"] not in ratios or {len(samples) for samples in ratios.values()} != {RECORDED}:
        raise ValueError(f"`ratios` must hold {RECORDED} samples each, the judge's among them")
    rates = values["images_per_sec"]
    check_rates([float(rates["median"]), float(rates["floor"])])
    return Recorded(
        ratios=ratios,
        judge=values["judge"],
        images_per_sec=float(rates["median"]),
        floor_images_per_sec=float(rates["floor"]),
    )


def _machine(values: Any) -> dict[str, Any]:
    if not isinstance(values["gpus"], list) or not isinstance(values["keras_backend"], str):
        raise ValueError(f"`machine` must hold a list of `gpus` and a `keras_backend`. Received: {values!r}")
    return dict(values)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _to_dict(baseline: Baseline) -> dict[str, Any]:
    """Returns what the file holds; medians and intervals are for whoever reads it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "anchors_version": anchors.VERSION,
        "subject": baseline.subject,
        "measure": baseline.measure,
        "figures": {
            name: {
                "judge": figure.judge,
                "ratios": {
                    anchor: {
                        "median": _rounded(float(np.median(values))),
                        "interval_95": _all_rounded(median_interval(values)),
                        "samples": _all_rounded(values),
                    }
                    for anchor, values in figure.ratios.items()
                },
                "images_per_sec": {
                    "median": _rounded(figure.images_per_sec),
                    "floor": _rounded(figure.floor_images_per_sec),
                },
            }
            for name, figure in baseline.figures.items()
        },
        "invariants": baseline.invariants.to_dict(),
        "machine": dict(baseline.machine),
        "dataset": None if baseline.dataset is None else dict(baseline.dataset),
    }


def _all_rounded(values: Sequence[float]) -> list[float]:
    return [_rounded(value) for value in values]


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
