"""Where and with what a measurement was made; no names of hosts, users or folders.

Control groups say how many cores they grant this process, and how often they took them away.
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
# Modules that are not named as their distributions are.
_MODULES = {"pillow": "PIL", "opencv-python-headless": "cv2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """Counters of one control group, since it began.

    Attributes:
      group: the folder that it was read from.
      periods: scheduler periods in which the group had something to run.
      throttled_periods: those in which it used its quota up and had to stop.
    """

    group: Path
    periods: int
    throttled_periods: int

    @staticmethod
    def now(root: Path = _ROOT, own: Path = _OWN) -> tuple[Throttling, ...]:
        """Reads the groups of this process that count; none where there is no quota or no control group.

        Each level has a quota of its own, that of a container and that of the pod around it.
        """
        read = (_read(folder) for folder in control_groups(root, own))
        return tuple(one for one in read if one is not None)


def throttled_ratio(before: Sequence[Throttling], after: Sequence[Throttling]) -> float | None:
    """Returns the part of the scheduler periods between two readings in which this process was throttled.

    Of several groups the worst counts. None where there is no group that counts; 0 where none has a quota.
    """
    earlier = {one.group: one for one in before}
    pairs = [(earlier[one.group], one) for one in after if one.group in earlier]
    if not pairs:
        return None
    return max(
        (last.throttled_periods - first.throttled_periods) / max(last.periods - first.periods, 1)
        for first, last in pairs
    )


def control_groups(root: Path = _ROOT, own: Path = _OWN) -> list[Path]:
    """Returns the folders of the control groups that this process is in, its own first, then those around it.

    Version 2 has one hierarchy, version 1 one for each controller. Inside a container the path that the kernel tells
    may be the host's and not be there; then only the root is.

    Args:
      root: where they are mounted.
      own: the file that says which are this process'.
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
    """Returns the cores that a control group grants, of version 2 or 1; None where it sets no limit."""
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text().split()[:2]
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        cores = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max" is no number
        return None
    return cores if cores > 0 else None  # version 1 says -1 for no limit


def _read(folder: Path) -> Throttling | None:
    try:
        pairs = (line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        counts = {name: int(number) for name, number in pairs}
        return Throttling(group=folder, periods=counts["nr_periods"], throttled_periods=counts["nr_throttled"])
    except (OSError, ValueError, KeyError):  # the root of version 2 counts no periods
        return None


def usable_cores(groups: Sequence[Path] | None = None) -> float:
    """Returns the cores this process may use: of its affinity, and of its control groups' quotas where those are less.

    Thread pools sized to the host and not to the container are a known cause of slowness (oneTBB issues 190, 1760).

    Args:
      groups: folders of its control groups; those it is in unless given.
    """
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quotas = (quota_cores(group) for group in (control_groups() if groups is None else groups))
    return min([cores, *(quota for quota in quotas if quota is not None)])


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
    """Returns the name of a program's file, and of a package that was run with `python -m` its folder's name."""
    return path.parent.name if path.name == "__main__.py" else path.name


def usable_threads() -> int:
    """Returns the threads that a pool sized to the usable cores has."""
    return max(1, math.ceil(usable_cores()))


def version_of(package: str) -> str:
    """Returns the version of a package, without importing it: of the imported module, else of what is installed.

    TensorFlow's and OpenCV's modules come from distributions of several names (tensorflow-cpu, opencv-python).

    Args:
      package: the usual name of its distribution.
    Returns:
      The version, or "unknown" where neither the package nor its module is there.
    """
    # By the distribution's name alone: the modules of others, such as cv2, leave out a part of the version.
    imported = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(imported, str):
        return imported
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    module = _MODULES.get(package, package)
    with contextlib.suppress(ValueError):  # an imported module may have no specification
        if importlib.util.find_spec(module) is None:
            return "unknown"  # said here: to list all distributions takes 0.2 s
    for name in metadata.packages_distributions().get(module, ()):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "unknown"


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _git_commit() -> str:
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def without_folder(word: str) -> str:
    """Drops the folders of a path, and its name, too, where it is a home folder and so a user's name."""
    if os.sep not in word:
        return word
    path = Path(word)
    return "~" if path == Path.home() or path.parent == Path.home().parent else path.name
