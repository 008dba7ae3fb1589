"""A device and the child process that holds it, for one case after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.devices.experiments import Case
from benchmarks.devices.feeds import Sources
from benchmarks.devices.samples import MeasuredCase
from benchmarks.lab.child import Child, ChildDied, JobRefused
from benchmarks.lab.command import new_log
from profiles import Device
from profiles.report import LeftOut

# Imports, the first trace of a large network and its first epoch.
_OPEN_TIMEOUT_S = 420.0


class Holder:
    """One device, and the child that holds it; a child that dies is replaced for the next case.

    Args:
      log: where its own output goes, or beside it; kept only if something went wrong.
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
          JobRefused: if the device is not there.
          ChildDied: if the child does.
        """
        self._child = Child(
            "benchmarks.devices.child:DeviceSession", self.device, self._log, self.device, self._sources
        )
        try:
            self.backend = self._child.ask("backend", timeout_s=_OPEN_TIMEOUT_S)
        except ChildDied:
            self._child, self._failed = None, True
            raise

    def open(self, case: Case) -> None:
        """Opens a case, in a new child where there is none."""
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
        """Whether a case is open here and has not failed."""
        return case in self.measured and case not in self._failed_cases

    def ask(self, case: Case, method: str, *arguments: Any, timeout_s: float) -> Any:
        """Asks the child for something about a case; one that fails is left out."""
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
        """Ends the child; its log is kept only where something failed."""
        if self._child is not None:
            self._child.close()
        self._remove_log()

    def kill(self) -> None:
        """Ends the child at once."""
        if self._child is not None:
            self._child.kill()
        self._remove_log()

    def _remove_log(self) -> None:
        if not self._failed:
            self._log.unlink(missing_ok=True)
