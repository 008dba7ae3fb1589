"""Measures in a child process what an image of the planned size costs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks.capacity.plan import Plan
from benchmarks.capacity.results import CapacityDocument
from benchmarks.capacity.samples import Measurements
from benchmarks.lab.child import Child, ChildDied, JobRefused
from benchmarks.lab.command import new_log, read_source
from benchmarks.lab.options import UserError
from benchmarks.scaleout.measure import SESSION
from pipeline import ImageSource
from profiles import Device
from profiles.provenance import machine
from profiles.report import Document, now

_CPU = Device(kind="cpu", name="cpu")
_TIMEOUT_S = 600.0


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Opens the photos, and gets ready to measure.

    Raises:
      UserError: if the photos are not files.
    """
    source = read_source(plan.data, progress, errors, skip_list=plan.skip_list)
    if not source.files:
        raise UserError(f"--data must be a folder of files, or generated:N. Received: {plan.data}.")
    return Run(plan, source, progress)


class Run:
    """Measures what a plan asks for."""

    def __init__(self, plan: Plan, source: ImageSource, progress: Progress) -> None:
        self._plan, self._source, self._progress = plan, source, progress
        self._created, self._provenance = now(), machine()
        runs = plan.runs
        self._measured = Measurements(
            cut=None,
            constants=None,
            loader_us=0.0,
            file_bytes=sum(os.path.getsize(path) for path in source.paths) / source.images,
            pools=runs.plan.pools if runs is not None else (),
            runs=runs.samples if runs is not None else None,
        )
        self._log = new_log(plan.out / "child.log")
        self._child = Child(SESSION, _CPU, self._log, _CPU, source)

    def document(self, *, complete: bool) -> CapacityDocument:
        """Returns the document of what was measured so far."""
        return Document(
            command="capacity",
            created=self._created,
            complete=complete,
            provenance=self._provenance,
            plan=self._plan.asked,
            dataset=self._source.to_dict(),
            samples=self._measured,
            left_out=(),
        )

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures all costs.

        Raises:
          UserError: if the pipeline cannot be measured.
        """
        config = self._plan.asked.config
        task = self._progress.add_task("what an image costs here", total=None)
        self._progress.refresh()
        self._measured = replace(
            self._measured,
            cut=self._ask("cut", config),
            constants=self._ask("constants", config),
            loader_us=self._ask("loader_us", config),
        )
        self._progress.remove_task(task)
        after_round()
        self._log.unlink(missing_ok=True)

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return self._child.ask(method, *arguments, timeout_s=_TIMEOUT_S)
        except (ChildDied, JobRefused) as error:
            raise UserError(f"capacity: {error}", exit_code=3) from error

    def close(self) -> None:
        self._child.close()

    def kill(self) -> None:
        self._child.kill()
