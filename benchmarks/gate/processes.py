"""Measures a subject of the gate in a fresh child process, which is gone when its figures are here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.gate.samples import Process
from benchmarks.lab.child import Child, ChildDied, ChildHung, Home, JobRefused
from profiles import Device

_OURS = Path(__file__).resolve().parents[2]
_SESSION = "benchmarks.gate.child:GateSession"
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
      inspect: whether the invariants, which have no noise, are read behind the windows.
    Raises:
      MeasureError: if it cannot, or takes too long.
    """
    # The child has not this process' import path, on which the folder of the user may come before the subject's own.
    # Nothing is written into the subject's folder, which may be the user's.
    home = Home(folder=subject.root, environment={"PYTHONDONTWRITEBYTECODE": "1"})
    try:
        child = Child(_SESSION, setting.device, log, subject, setting, Path.cwd(), home=home)
        try:
            process: Process = child.ask("measure", WINDOWS, anchors, inspect, timeout_s=setting.timeout_s)
        finally:
            child.kill()
    except ChildHung as error:
        raise MeasureError(f"{subject.label}: {error}. Measure less, such as dataset.take(100).") from error
    except (ChildDied, JobRefused) as error:
        raise MeasureError(f"{subject.label}: {error}") from error
    return process
