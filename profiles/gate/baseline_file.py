"""Reads and writes the file of a baseline: a small JSON file that people read and commit."""

from __future__ import annotations

import json
import os
import re
import secrets
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unstall.profiles.gate import anchors
from unstall.profiles.gate.baseline import RECORDED, WAYS, Baseline, RecordedFigure
from unstall.profiles.gate.invariants import invariants_from_dict
from unstall.profiles.gate.log_ratios import check_rates
from unstall.profiles.gate.verdicts import EPOCH, STEADY
from unstall.profiles.statistics import median_interval

SCHEMA_VERSION = 3
# Digits of a rate that are written: those after the fourth are noise.
_DIGITS = 4
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
# A list of numbers that `json` has written with one number in each line.
_NUMBERS = re.compile(r"\[\n\s+([-+.0-9e,\s]+?)\n\s+\]")


class BaselineError(Exception):
    """A baseline cannot be used or written; the message says which file, why, and what to do.

    Attributes:
      exit_code: 2 where the user asked for something wrong; 3 where the file is missing or unreadable, so that nothing
        can be compared with it.
    """

    def __init__(self, message: str, *, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def path_of(folder: Path, name: str) -> Path:
    """Returns the file of a benchmark.

    Raises:
      BaselineError: if the name cannot be a file's name.
    """
    if not _NAME.fullmatch(name):
        raise BaselineError(
            f"A benchmark's name must be letters, digits, '.', '_' and '-', 100 at most, not with a '.' first. "
            f"Received: {name!r}."
        )
    return folder / f"{name}.json"


def check_writable(path: Path, *, overwrite: bool) -> None:
    """Checks that a baseline can be written, before minutes are spent on measuring.

    Raises:
      BaselineError: if the file cannot be written, or exists and is not to be overwritten.
    """
    if path.exists() and not overwrite:
        raise BaselineError(f"{path} is there already. Give --overwrite to record it anew.")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise BaselineError(f"{path} cannot be written: {error.strerror or error}.") from error


def write(baseline: Baseline, path: Path, *, overwrite: bool) -> None:
    """Writes a baseline to a temporary file and then renames that, so that no reader sees an incomplete baseline.

    Raises:
      BaselineError: if the file exists and is not to be overwritten, or cannot be written.
    """
    text = json.dumps(_to_dict(baseline), indent=2, allow_nan=False) + "\n"
    text = _NUMBERS.sub(lambda match: "[" + " ".join(match[1].split()) + "]", text)
    if overwrite:
        path = path.resolve()  # a link stays a link: the file that it leads to is replaced
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
            _link(aside, path, text)
    except FileExistsError as error:
        raise BaselineError(f"{path} is there already. Give --overwrite to record it anew.") from error
    except OSError as error:
        raise BaselineError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        aside.unlink(missing_ok=True)


def _link(aside: Path, path: Path, text: str) -> None:
    """Gives a written file its name.

    Raises:
      FileExistsError: if there is such a file, even if another process has just written it.
    """
    try:
        os.link(aside, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        with path.open("x", encoding="utf-8") as file:
            file.write(text)


def read(path: Path) -> Baseline:
    """Reads a baseline.

    Raises:
      BaselineError: if the file does not exist, or holds no baseline.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except FileNotFoundError as error:
        raise BaselineError(f"{path} does not exist. Record it first: `gate record`.", exit_code=3) from error
    except (OSError, ValueError, RecursionError) as error:
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
    figures = {str(name): _recorded_from_dict(figure) for name, figure in values["figures"].items()}
    if EPOCH not in figures or not set(figures) <= {STEADY, EPOCH}:
        raise ValueError(f"`figures` must be {EPOCH}, or {STEADY} and {EPOCH}. Received: {', '.join(figures)}")
    return Baseline(
        subject=str(values["subject"]),
        measure=str(values["measure"]),
        reading=_reading(values, figures),
        figures=figures,
        invariants=invariants_from_dict(values["invariants"]),
        machine=_machine(values["machine"]),
        dataset=None if values["dataset"] is None else dict(values["dataset"]),
    )


def _reading(values: Any, figures: Collection[str]) -> str:
    """Returns how a benchmark was read. Before files said so, everything that gives batches was read by `fit`."""
    reading = values.get("reading", "fit" if STEADY in figures else "calls")
    if reading not in WAYS:
        raise ValueError(f"`reading` must be one of {', '.join(WAYS)}. Received: {reading!r}")
    return str(reading)


def _recorded_from_dict(values: Any) -> RecordedFigure:
    ratios = {
        str(name): tuple(float(value) for value in anchor["samples"]) for name, anchor in values["ratios"].items()
    }
    for samples in ratios.values():
        check_rates(samples)
    if not set(ratios) <= set(anchors.NAMES):
        raise ValueError(f"`ratios` must be to {', '.join(anchors.NAMES)}. Received: {', '.join(ratios)}")
    if values["judge"] not in ratios or {len(samples) for samples in ratios.values()} != {RECORDED}:
        raise ValueError(f"`ratios` must hold {RECORDED} samples each, the judge's among them")
    rates = values["images_per_sec"]
    check_rates([float(rates["median"]), float(rates["floor"])])
    return RecordedFigure(
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
    """Returns what the file holds; its medians and intervals are for people, and are not read back."""
    return {
        "schema_version": SCHEMA_VERSION,
        "anchors_version": anchors.VERSION,
        "subject": baseline.subject,
        "measure": baseline.measure,
        "reading": baseline.reading,
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
