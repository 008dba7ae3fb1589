"""Runs `child.py` for one measurement, and ends it whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiles import Device
from profiles.devices import NO_GPU
from profiles.gate import EPOCH, Invariants, agreed, check_rates, invariants_from_dict
from profiles.statistics import median

_OURS = Path(__file__).resolve().parents[2]
# The program of the child. Our folder is on its path no longer than this takes.
_CHILD = (
    f"import sys; sys.path.insert(0, {str(_OURS)!r}); import unstall; del sys.path[0]; "
    "sys.exit(unstall.of_ours('benchmarks.gate.child:main')())"
)
# Windows of half a second in a process, whose medians are its figures: what differs between processes is more than
# what differs within one, so that more of them in each would buy nothing.
WINDOWS = 4
# Processes that are looked at for what has no noise: what differs between two of the same has some.
INSPECTED = 2
# Imports, a first epoch that fills a cache, the windows.
TIMEOUT_S = 600.0


class MeasureError(Exception):
    """Nothing could be measured; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is measured.

    Attributes:
      label: how the user called it.
      kind: "variant", "toml", "function" of the user's, or "own function": one of this project's.
      text: the variant's name, the file's text, or "module:function".
      root: the folder whose code it is.
      revision: whether nothing else than that folder's code may be measured.
    """

    label: str
    kind: str
    text: str
    root: Path = _OURS
    revision: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How it is measured: the same for all that is compared."""

    data: str
    measure: str
    model: str
    device: Device
    timeout_s: float = TIMEOUT_S
    skip_list: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What one process came to: by figure a rate for each window, and each anchor's rates beside them.

    Raises:
      ValueError: at a rate that is not a number above 0, or where there is none.
    """

    rates: Mapping[str, tuple[float, ...]]
    anchors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    invariants: Invariants | None = None
    backend: str = ""
    gpus: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if EPOCH not in self.rates:
            raise ValueError(f"A process must measure whole epochs. Received: {', '.join(self.rates) or 'none'}.")
        for rates in (*self.rates.values(), *self.anchors.values()):
            if not rates:
                raise ValueError("A process must measure at least one window. Received: none.")
            check_rates(rates)

    @property
    def images_per_sec(self) -> dict[str, float]:
        return {figure: median(rates) for figure, rates in self.rates.items()}

    def to_dict(self) -> dict[str, Any]:
        return {
            "images_per_sec": self.images_per_sec,
            "windows": {figure: list(rates) for figure, rates in self.rates.items()},
            "anchors": {name: list(rates) for name, rates in self.anchors.items()},
        }


def invariants_of(processes: Sequence[Process]) -> Invariants | None:
    """Returns what the inspected of some processes of the same agree on; None before there are two."""
    if len(processes) < INSPECTED:
        return None
    first, second = (one.invariants for one in processes[:INSPECTED])
    return None if first is None or second is None else agreed(first, second)


def measure(subject: Subject, setting: Setting, log: Path, *, anchors: bool = False, inspect: bool = False) -> Process:
    """Measures in a fresh process.

    Args:
      log: where the process writes what it has to say.
      anchors: whether the anchors are measured beside each window.
      inspect: whether what has no noise is looked at, behind the windows.
    Raises:
      MeasureError: if it cannot, or takes too long.
    """
    request = {
        "here": str(Path.cwd()),
        "root": str(subject.root),
        "revision": subject.revision,
        "kind": subject.kind,
        "text": subject.text,
        "data": setting.data,
        "skip_list": setting.skip_list,
        "measure": setting.measure,
        "model": setting.model,
        "device": setting.device.name,
        "windows": WINDOWS,
        "anchors": anchors,
        "inspect": inspect,
    }
    answer = _answer(request, subject, setting, log)
    if "error" in answer:
        raise MeasureError(f"{subject.label}: {answer['error']}")
    try:
        return Process(
            rates={figure: tuple(rates) for figure, rates in answer["images_per_sec"].items()},
            anchors={name: tuple(rates) for name, rates in answer["anchors"].items()},
            invariants=None if answer["invariants"] is None else invariants_from_dict(answer["invariants"]),
            backend=str(answer["backend"]),
            gpus=tuple(answer["gpus"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MeasureError(f"{subject.label}: no figures that can be used: {error}") from error


def _answer(request: dict[str, Any], subject: Subject, setting: Setting, log: Path) -> dict[str, Any]:
    # -P: the child itself puts the measured folder on its path.
    command = [sys.executable, "-P", "-c", _CHILD, json.dumps(request)]
    with tempfile.TemporaryFile() as answer, log.open("ab") as said:
        process = subprocess.Popen(
            command,
            cwd=subject.root,
            env=_environment(setting.device),
            stdin=subprocess.PIPE,  # held open: the child ends when it closes
            stdout=answer,
            stderr=said,
            start_new_session=True,
        )
        try:
            exit_code = process.wait(setting.timeout_s)
        except subprocess.TimeoutExpired as error:
            raise MeasureError(
                f"{subject.label}: no answer within {setting.timeout_s:.0f} s. Measure less, such as dataset.take(100)."
            ) from error
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # with all that it started
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        answer.seek(0)
        text = answer.read().decode("utf-8", "replace").strip()
    try:
        values = json.loads(text)
    except ValueError as error:
        died = f"signal {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"
        raise MeasureError(f"{subject.label}: its process gave no answer and ended with {died}") from error
    if not isinstance(values, dict):
        raise MeasureError(f"{subject.label}: its process gave no answer that can be read")
    return values


def _environment(device: Device) -> dict[str, str]:
    environment = {
        **os.environ,
        "NO_ALBUMENTATIONS_UPDATE": "1",
        # Nothing is written into the user's folders.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if device.kind != "gpu":
        environment |= NO_GPU
    return environment
