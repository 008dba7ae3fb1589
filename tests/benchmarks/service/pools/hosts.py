"""Emulates hosts on this one: namespaces with links of a rate, and control groups with quotas; or cores of their own.

Needs Linux, and for namespaces the rights of root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.relay import Relay
from unstall.pipeline.service import LOOPBACK_HOST

_GROUPS = Path("/sys/fs/cgroup")
# A quota is renewed so often: the kernel's default. In a tenth of it, an image took a worker up to a tenth more CPU
# time, as its caches were cold after each pause.
_PERIOD_US = 100_000
# A link passes so much at once before its rate holds; some ten milliseconds of 100 Mbit/s.
_BURST_BYTES = 128 * 1024
_NETWORK = "10.213.77"
_TIMEOUT_S = 20.0


class HostsError(Exception):
    """This system cannot emulate hosts; the message has one line."""


def why_not(*, loopback: bool) -> str:
    """Returns why this system cannot emulate hosts, as cores of its own or as namespaces; empty if it can."""
    if loopback:
        few = not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2
        return "needs two cores: one for a worker, one for the trainer" if few else ""
    if os.geteuid() != 0:
        return "needs the rights of root: it makes network namespaces and control groups, and removes them"
    missing = [command for command in ("ip", "tc", "nsenter") if shutil.which(command) is None]
    return f"needs the commands ip, tc and nsenter; missing: {', '.join(missing)}" if missing else ""


class EmulatedHosts:
    """Hosts in network namespaces, joined by a switch in another; each may have a quota of CPU time.

    The first host is the trainer's. Only what is sent to it, and what others send, has the link's rate: batches go one
    way.

    Args:
      hosts: how many.
      link_bytes_per_sec: None for no limit.
    Raises:
      HostsError: if this system does not allow it.
    """

    def __init__(self, hosts: int, link_bytes_per_sec: float | None) -> None:
        self._prefix = f"unstall{os.getpid()}"
        self._hosts, self._rate = hosts, link_bytes_per_sec
        self._groups: list[Path] = []
        try:
            for number in range(hosts):
                self._groups.append(_group(f"{self._prefix}-{number}"))
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        switch = f"{self._prefix}-s"
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "bridge", "up")
        for number in range(self._hosts):
            host = f"{self._prefix}-{number}"
            _run("ip", "netns", "add", host)
            _run(
                "ip", "-n", switch, "link", "add", f"port{number}", "type", "veth", "peer", "name", "eth", "netns", host
            )
            _run("ip", "-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")
            _run("ip", "-n", host, "addr", "add", f"{self.address(number)}/24", "dev", "eth")
            _run("ip", "-n", host, "link", "set", "eth", "up")
            _run("ip", "-n", host, "link", "set", "lo", "up")
            if self._rate is not None:
                where = (switch, "port0") if number == 0 else (host, "eth")
                limit = f"{int(self._rate * 8)}bit"
                shape = ("tbf", "rate", limit, "burst", str(_BURST_BYTES), "latency", "50ms")
                _run("tc", "-n", where[0], "qdisc", "add", "dev", where[1], "root", *shape)

    def address(self, number: int) -> str:
        return f"{_NETWORK}.{number + 1}"

    def prefix(self, number: int) -> tuple[str, ...]:
        """Returns the words that stand before a command to run it on a host."""
        enter = ("nsenter", f"--net=/run/netns/{self._prefix}-{number}")
        return ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._groups[number] / "cgroup.procs"), *enter)

    def give(self, cores: Sequence[float]) -> None:
        """Gives each host its cores. Before this, each has all of them, so that processes start soon."""
        for group, quota in zip(self._groups, cores, strict=True):
            quota_us = int(quota * _PERIOD_US)
            if (group / "cpu.cfs_quota_us").exists():
                (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(quota_us))
            else:
                (group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")

    def close(self) -> None:
        """Removes the namespaces and the groups; what still runs in them is ended before."""
        for name in (f"{self._prefix}-s", *(f"{self._prefix}-{number}" for number in range(self._hosts))):
            with contextlib.suppress(HostsError):
                _run("ip", "netns", "del", name)
        for group in self._groups:
            with contextlib.suppress(OSError):
                group.rmdir()


class Cores:
    """Hosts that are each a core of this one, by affinity; the link to the second is a relay in this process.

    Args:
      hosts: how many; the first is the trainer's. The last is the core of the one before it where there are too few.
      link_bytes_per_sec: None for no limit.
      delay_s: that bytes take one way. Without a limit and a delay there is no relay.
    """

    def __init__(self, hosts: int, link_bytes_per_sec: float | None, delay_s: float = 0.0) -> None:
        self._cores = sorted(os.sched_getaffinity(0))[:hosts]
        relayed = link_bytes_per_sec is not None or delay_s > 0
        self.relay = Relay(link_bytes_per_sec, delay_s=delay_s) if relayed else None

    def address(self, number: int) -> str:
        return LOOPBACK_HOST

    def prefix(self, number: int) -> tuple[str, ...]:
        """Returns the words that stand before a command to run it on a host."""
        return ("taskset", "-c", str(self._cores[min(number, len(self._cores) - 1)]))

    def give(self, cores: Sequence[float]) -> None:
        """Does nothing: each host has its core from the beginning."""

    def close(self) -> None:
        if self.relay is not None:
            self.relay.close()


def _group(name: str) -> Path:
    """Makes a control group for CPU time, of version 1 or 2, and returns its folder."""
    folder = (_GROUPS / "cpu" if (_GROUPS / "cpu").is_dir() else _GROUPS) / name
    try:
        if folder.parent == _GROUPS:
            (_GROUPS / "cgroup.subtree_control").write_text("+cpu")
        folder.mkdir()
    except OSError as error:
        raise HostsError(f"no control group can be made in {folder.parent}: {error.strerror}.") from error
    return folder


def _run(*words: str) -> None:
    try:
        subprocess.run(words, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise HostsError(f"`{' '.join(words)}` does not end.") from error
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise HostsError(f"`{' '.join(words)}` failed: {reason}.") from error
