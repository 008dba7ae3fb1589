"""Describes the machine and the software of a measurement, without names of hosts, users or folders.

Control groups (containers, pods) say how many cores this process may use, and how often its quota stopped it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

_ROOT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

_PACKAGES = ("unstall", "tensorflow", "keras", "jax", "numpy", "pillow", "opencv-python-headless", "albumentations")
# Modules whose names differ from those of their distributions.
_MODULES = {"pillow": "PIL", "opencv-python-headless": "cv2"}
# What tells one ARM processor from another, as Linux names it.
_ARM = ("implementer", "part", "variant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """Counters of one control group, since the group was made.

    Attributes:
      group: folder of the control group.
      periods: scheduler periods in which the group had something to run.
      throttled_periods: those periods in which the group had used up its quota and was stopped.
    """

    group: Path
    periods: int
    throttled_periods: int

    @staticmethod
    def now(root: Path = _ROOT, own: Path = _OWN) -> tuple[Throttling, ...]:
        """Reads the counters of this process' control groups; empty where no group keeps such counters.

        A container and the pod around it are two groups, each with a quota of its own.
        """
        readings = (_read(folder) for folder in control_groups(root, own))
        return tuple(reading for reading in readings if reading is not None)


def throttled_ratio(before: Sequence[Throttling], after: Sequence[Throttling]) -> float | None:
    """Returns the part of the scheduler periods between two readings in which a quota stopped this process.

    Returns:
      From 0 to 1, of the control group that was stopped most; 0 where no group has a quota; None where no group keeps
      counters.
    """
    earlier = {reading.group: reading for reading in before}
    pairs = [(earlier[reading.group], reading) for reading in after if reading.group in earlier]
    if not pairs:
        return None
    return max(
        (last.throttled_periods - first.throttled_periods) / max(last.periods - first.periods, 1)
        for first, last in pairs
    )


def control_groups(root: Path = _ROOT, own: Path = _OWN) -> list[Path]:
    """Returns the folders of this process' control groups: its own first, then those around it.

    Version 2 of control groups has one hierarchy, version 1 has one for each controller. Inside a container the kernel
    may give a path of the host that does not exist there: then only the root folder is returned.

    Args:
      root: folder where control groups are mounted.
      own: file that names the groups of this process.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / controllers
        parts = [part for part in path.split("/") if part]
        levels = [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
        folders += [level for level in levels if (level / "cpu.stat").is_file() or (level / "cpu.max").is_file()]
    return folders


def quota_cores(folder: Path) -> float | None:
    """Returns the number of cores that a control group (version 1 or 2) allows; None where it sets no limit."""
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text().split()[:2]
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        cores = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # version 2 writes "max" for no limit
        return None
    return cores if cores > 0 else None  # version 1 writes -1 for no limit


def _read(folder: Path) -> Throttling | None:
    try:
        pairs = (line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        counts = {name: int(number) for name, number in pairs}
        return Throttling(group=folder, periods=counts["nr_periods"], throttled_periods=counts["nr_throttled"])
    except (OSError, ValueError, KeyError):  # the root group of version 2 counts no periods
        return None


def usable_cores(groups: Sequence[Path] | None = None) -> float:
    """Returns the number of cores that this process may use, the smallest of its affinity and its groups' quotas.

    Thread pools sized to the host and not to the container are a known cause of slowness (oneTBB issues 190, 1760).

    Args:
      groups: folders of control groups; those of this process unless given.
    """
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quotas = (quota_cores(group) for group in (control_groups() if groups is None else groups))
    return min([cores, *(quota for quota in quotas if quota is not None)])


def free_memory_bytes(groups: Sequence[Path] | None = None) -> float:
    """Returns how much more memory this process may take: what is free, or what a limit of its groups leaves.

    A group's page cache that has not been read lately is free as well.

    Args:
      groups: folders of control groups (version 2); those of this process unless given.
    """
    free = [float(psutil.virtual_memory().available)]
    for group in control_groups() if groups is None else groups:
        with contextlib.suppress(OSError, ValueError, KeyError):  # version 2 writes "max" for no limit
            limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            free.append(float(max(limit - used + int(stat["inactive_file"]), 0)))
    return min(free)


def machine() -> dict[str, Any]:
    """Describes the machine, without importing TensorFlow."""
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": {name: version_of(name) for name in _PACKAGES},
        "cpu": _cpu_model(),
        "usable_cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "git_commit": _git_commit(),
        "command": [_command(Path(sys.argv[0])), *(without_folder(word) for word in sys.argv[1:])],
    }


def _command(path: Path) -> str:
    """Returns the name of a program's file, or of the package that `python -m` runs."""
    return path.parent.name if path.name == "__main__.py" else path.name


def usable_threads() -> int:
    """Returns the number of threads for a thread pool that uses all usable cores."""
    return max(1, math.ceil(usable_cores()))


def version_of(package: str) -> str:
    """Returns the version of a package without importing the package.

    Several distributions install the module of TensorFlow (tensorflow-cpu) or of OpenCV (opencv-python).

    Args:
      package: the usual name of the distribution.
    Returns:
      The version of the imported module of this name, else that of the installed distribution; "unknown" if there is
      neither.
    """
    # Not the module's name: cv2 and others leave out a part of the version of their distribution.
    imported = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(imported, str):
        return imported
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    module = _MODULES.get(package, package)
    with contextlib.suppress(ValueError):  # an imported module may have no import specification
        if importlib.util.find_spec(module) is None:
            return "unknown"  # without listing all distributions, which takes 0.2 s
    for name in metadata.packages_distributions().get(module, ()):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "unknown"


def _cpu_model() -> str:
    try:
        lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    except OSError:
        lines = []
    known = {name.strip(): value.strip() for name, _, value in lines}
    if "model name" in known:
        return known["model name"]
    if "CPU part" in known:  # of ARM, which has numbers in the place of a name
        return " ".join(["ARM", *(f"{name} {known[f'CPU {name}']}" for name in _ARM if f"CPU {name}" in known)])
    return platform.processor() or "unknown"


def _git_commit() -> str:
    try:
        git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return git.stdout.strip()


def without_folder(word: str) -> str:
    """Returns a path's last part, or "~" for a home folder, whose name is a user's; other words unchanged."""
    if os.sep not in word:
        return word
    path = Path(word)
    return "~" if path == Path.home() or path.parent == Path.home().parent else path.name
