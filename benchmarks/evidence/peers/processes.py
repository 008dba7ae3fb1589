"""Starts the peers' processes: each in a folder of its own, some under another interpreter."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import unstall
from unstall.benchmarks.lab.child import Child, Home, kill_all
from unstall.profiles import Device, clock
from unstall.profiles.devices import CPU

_DEVICES = {False: CPU, True: Device(kind="gpu", name="gpu")}
# Duration of one check for rest, the CPU time that a resting process may use in this time (the kernel counts in ticks
# of 10 ms), and the number of checks.
_REST_MS, _REST_CPU_MS, _REST_TRIES = 100, 10, 30


class Launcher:
    """Starts processes, each in a folder of its own, and ends all of them.

    Args:
      scratch: the folder in which the processes' folders are made.
      modules: the folder of links made by `link_packages`.
      pythons: for each peer that runs under another interpreter, the path of that interpreter.
    Attributes:
      session: the class that answers in the processes.
    """

    session = "benchmarks.evidence.peers.child:PeerSession"

    def __init__(self, scratch: Path, modules: Path, pythons: Mapping[str, str]) -> None:
        self._scratch, self._modules, self._pythons = scratch, modules, pythons
        self._running: list[Child] = []
        self._started = 0

    def start(self, name: str, *, gpu: bool = False) -> tuple[Child, Path]:
        """Starts a peer's process, which sees GPUs only with `gpu`. Returns the process and its folder."""
        self._started += 1
        folder = self._scratch / f"{self._started:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        python = self._pythons.get(name, sys.executable)
        # Worker processes that a library starts in a new interpreter find this project's modules on this path.
        path = [str(self._modules)]
        if python == sys.executable and os.environ.get("PYTHONPATH"):
            path.append(os.environ["PYTHONPATH"])
        environment = {"PYTHONPATH": os.pathsep.join(path), "UNSTALL_CACHE": str(folder)}
        home = Home(folder=self._modules, python=python, environment=environment)
        process = Child(self.session, _DEVICES[gpu], folder.with_suffix(".log"), home=home)
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
    """Makes a folder with a link to this project's package: another interpreter finds nothing else there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "unstall").symlink_to(unstall.ROOT / "unstall")
    return folder
