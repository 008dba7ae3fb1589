"""Holds a device through a child process, and asks the child about one case after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unstall.benchmarks.devices.experiments import Case
from unstall.benchmarks.devices.feeds import Sources
from unstall.benchmarks.devices.samples import MeasuredCase
from unstall.benchmarks.lab.child import Child, ChildDied, JobRefused
from unstall.benchmarks.lab.command import new_log
from unstall.profiles import Device
from unstall.profiles.report import LeftOut

# Time to import, to trace a large network and to run its first epoch.
_OPEN_TIMEOUT_S = 420.0


class Holder:
    """A device and the child that holds the device. A child that dies is replaced for the next case.

    Args:
      log: the file for the child's output, kept only if a case failed; another name beside this file if it exists.
    """

    def __init__(self, device: Device, sources: Sources, log: Path) -> None:
        self.device = device
        self.backend: dict[str, Any] = {}
        self.measured: dict[Case, MeasuredCase] = {}
        self.left_out: list[LeftOut] = []
        self._log = new_log(log)
        self._sources = sources
        self._child: Child | None = None
        self._failed = False
        self._failed_cases: set[Case] = set()

    def start(self) -> None:
        """Starts the child.

        Raises:
          JobRefused: if the device is missing.
          ChildDied: if the child dies.
        """
        child = Child("benchmarks.devices.child:DeviceSession", self.device, self._log, self.device, self._sources)
        try:
            self.backend = child.ask("backend", timeout_s=_OPEN_TIMEOUT_S)
        except BaseException as error:
            self._failed |= isinstance(error, ChildDied)
            child.kill()
            raise
        self._child = child

    def open(self, case: Case) -> None:
        """Opens a case, in a new child if the last child died."""
        try:
            if self._child is None:
                self.start()
        except (JobRefused, ChildDied) as error:
            self._leave_out(case, error)
            return
        facts = self.ask(case, "open", case, timeout_s=_OPEN_TIMEOUT_S)
        if facts is not None:
            backend = str(self.backend.get("keras_backend", "unknown"))
            self.measured[case] = MeasuredCase(case=case, device=self.device, backend=backend, facts=facts)

    def has(self, case: Case) -> bool:
        """Whether a case was opened and has not failed."""
        return case in self.measured and case not in self._failed_cases

    def ask(self, case: Case, method: str, *arguments: Any, timeout_s: float) -> Any:
        """Calls a method of the child for a case; leaves the case out and returns None if the child refuses or dies."""
        assert self._child is not None
        try:
            return self._child.ask(method, *arguments, timeout_s=timeout_s)
        except (JobRefused, ChildDied) as error:
            self._leave_out(case, error)
        return None

    def _leave_out(self, case: Case, error: Exception) -> None:
        self.left_out.append(LeftOut(who=f"{case.name} ({self.device.name})", reason=str(error)))
        self._failed_cases.add(case)
        self._failed = True
        if isinstance(error, ChildDied):
            self._child = None

    def close(self) -> None:
        """Ends the child, and removes its log unless a case failed."""
        if self._child is not None:
            self._child.close()
        self._remove_log()

    def kill(self) -> None:
        """Kills the child, and removes its log unless a case failed."""
        if self._child is not None:
            self._child.kill()
        self._remove_log()

    def _remove_log(self) -> None:
        if not self._failed:
            self._log.unlink(missing_ok=True)
