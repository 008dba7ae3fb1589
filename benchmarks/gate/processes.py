"""Runs `child.py` for one measurement, and ends it whatever happens.

Not by `lab/child.py`: a process that multiprocessing spawns begins with the `sys.path` and the main module of its
parent, so that code of the folder in which the user stands could be taken for that of the revision that is measured.
The process here is a fresh interpreter in the measured folder. `-P` keeps that folder off the path until the child puts
the right folder there, its environment is its own (it writes no bytecode into the user's folders), and it answers in
JSON, so that nothing which measured code returns is unpickled here.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gate.samples import Process
from profiles import Device
from profiles.devices import NO_GPU
from profiles.gate import invariants_from_dict

_OURS = Path(__file__).resolve().parents[2]
# The program of the child. Our folder is on its path no longer than this takes.
_CHILD = (
    f"import sys; sys.path.insert(0, {str(_OURS)!r}); import unstall; del sys.path[0]; "
    "sys.exit(unstall.of_ours('benchmarks.gate.child:main')())"
)
# Windows of half a second in a process, whose medians are its figures: what differs between processes is more than
# what differs within a process, so that more windows in each would buy nothing.
WINDOWS = 4
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
    with tempfile.TemporaryFile() as answer, log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=subject.root,
            env=_environment(setting.device),
            stdin=subprocess.PIPE,  # held open: the child ends when it closes
            stdout=answer,
            stderr=output,
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
