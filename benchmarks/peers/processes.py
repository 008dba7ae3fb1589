"""The processes of the peers: each in a folder of its own, some under another interpreter."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.lab.child import Child, Home, kill_all
from profiles import Device, clock

_SESSION = "benchmarks.peers.child:PeerSession"
_CPU = Device(kind="cpu", name="cpu")
# A process rests when it took less than a tenth of a core for so long; the kernel counts in ticks of 10 ms.
_REST_MS, _REST_CPU_MS, _REST_TRIES = 100, 10, 30
# What children import of this project.
_PACKAGES = ("benchmarks", "pipeline", "profiles", "unstall.py")


class Launcher:
    """Starts processes in folders of their own, and ends them all.

    Args:
      scratch: the folder of these folders.
      modules: the folder of links made by `link_packages`.
      pythons: another interpreter, by peer.
    """

    def __init__(self, scratch: Path, modules: Path, pythons: Mapping[str, str]) -> None:
        self._scratch, self._modules, self._pythons = scratch, modules, pythons
        self._running: list[Child] = []
        self._started = 0

    def start(self, name: str) -> tuple[Child, Path]:
        """Starts a peer's process. Returns the process and its folder."""
        self._started += 1
        folder = self._scratch / f"{self._started:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        python = self._pythons.get(name, sys.executable)
        # Worker processes that a library starts afresh find their modules by this path.
        path = [str(self._modules)]
        if python == sys.executable and os.environ.get("PYTHONPATH"):
            path.append(os.environ["PYTHONPATH"])
        environment = {"PYTHONPATH": os.pathsep.join(path), "UNSTALL_CACHE": str(folder)}
        home = Home(folder=self._modules, python=python, environment=environment)
        process = Child(_SESSION, _CPU, folder.with_suffix(".log"), home=home)
        self._running.append(process)
        return process, folder

    def end(self) -> None:
        kill_all(self._running)
        self._running.clear()


def rest(process: Child) -> bool:
    """Waits until a process and its workers use no CPU any more. Returns whether they stopped in time."""
    for _ in range(_REST_TRIES):
        before_ns = clock.tree_cpu_ns(process.pid)
        clock.sleep_until_ns(clock.now_ns() + _REST_MS * 10**6)
        if clock.tree_cpu_ns(process.pid) - before_ns <= _REST_CPU_MS * 10**6:
            return True
    return False


def link_packages(folder: Path) -> Path:
    """Makes a folder of links to this project's packages: on another interpreter's path, it shows nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    parent = Path(__file__).resolve().parents[2]
    for name in _PACKAGES:
        (folder / name).symlink_to(parent / name)
    return folder
