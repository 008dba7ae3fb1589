"""Measures a subject of the gate in a fresh child process, which has ended when its figures are returned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import unstall
from unstall.benchmarks.gate.samples import Process
from unstall.benchmarks.lab.child import Child, ChildDied, ChildHung, Home, JobRefused
from unstall.profiles import Device, clock
from unstall.profiles.gate import EPOCH

_SESSION = "benchmarks.gate.child:GateSession"
_IN_ENVIRONMENT = Path(__file__).with_name("environment.py")
# Number of windows in a process; each lasts half a second, and their median is the process' figure. Rates differ more
# between processes than within a process, so more windows in each process would gain nothing.
WINDOWS = 4
# How long a window is at least where a function is run in another environment.
_WINDOW_S = 0.5
# For all of a process: imports, a first epoch that fills a cache, and the windows.
TIMEOUT_S = 600.0


class MeasureError(Exception):
    """A process could not measure its subject; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is measured.

    Attributes:
      label: the subject's name for people.
      kind: "variant", "toml", or "function" (the user's).
      text: the variant's name, the file's text, or "module:function".
      root: the folder whose code is measured.
      revision: whether only that folder's code may be measured; of the user's functions alone.
      python: the interpreter of another environment, in which a function is run; None for this one.
    """

    label: str
    kind: str
    text: str
    root: Path = unstall.HOME
    revision: bool = False
    python: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a subject is measured: the same for all subjects that are compared."""

    data: str
    measure: str
    model: str
    device: Device
    timeout_s: float = TIMEOUT_S
    skip_list: str | None = None


def measure(subject: Subject, setting: Setting, log: Path, *, anchors: bool = False, inspect: bool = False) -> Process:
    """Measures a subject in a fresh process.

    Args:
      log: the file to which the process' output goes.
      anchors: whether the anchors are measured beside each window.
      inspect: whether the invariants, which have no noise, are read after the windows.
    Raises:
      MeasureError: if the process fails or takes too long.
    """
    if subject.python is not None:
        return _measure_in(subject.python, subject, setting, log)
    # With a home, the child does not inherit this process' import path, where the user's folder may come before the
    # subject's. The variable keeps Python from writing bytecode into the subject's folder, which may be the user's.
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


def _measure_in(python: str, subject: Subject, setting: Setting, log: Path) -> Process:
    """Measures a function in another environment: the child counts images, and this process takes the time."""
    home = Home(folder=subject.root, python=python, environment={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": ""})
    until_ns = clock.now_ns() + int(setting.timeout_s * 1e9)
    try:
        # GPUs are not hidden, since the function itself chooses where it computes.
        child = Child(_IN_ENVIRONMENT, None, log, subject.text, str(subject.root), home=home)
        try:
            packages: dict[str, str] = child.ask("versions", timeout_s=setting.timeout_s)
            _timed(child, 1, until_ns)  # imports, compiles, fills caches
            _, seconds = _timed(child, 1, until_ns)
            calls = max(1, math.ceil(_WINDOW_S / seconds))
            rates = []
            for _ in range(WINDOWS):
                images, seconds = _timed(child, calls, until_ns)
                rates.append(images / seconds)
        finally:
            child.kill()
    except ChildHung as error:
        reason = f"it was not measured within {setting.timeout_s:.0f} s, and was ended. Let a call do less"
        raise MeasureError(f"{subject.label}: {reason}.") from error
    except (ChildDied, JobRefused, OSError) as error:
        raise MeasureError(f"{subject.label}: {error}") from error
    return Process(rates={EPOCH: tuple(rates)}, packages=packages)


def _timed(child: Child, calls: int, until_ns: int) -> tuple[int, float]:
    """Returns the images of so many calls, which must end in time, and their seconds."""
    began_ns = clock.now_ns()
    images: int = child.ask("run", calls, timeout_s=max(until_ns - began_ns, 0) / 1e9)
    return images, max(clock.now_ns() - began_ns, 1) / 1e9
