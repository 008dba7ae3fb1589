"""Reads from the control groups of this process how many cores they grant and how often they took them away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


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
