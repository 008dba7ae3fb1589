"""Measures in a child process what a decision is made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks.lab.child import Child, ChildDied, JobRefused
from benchmarks.lab.command import new_log, read_source
from benchmarks.lab.options import UserError
from benchmarks.scaleout.plan import Plan
from benchmarks.scaleout.results import ScaleoutDocument
from benchmarks.scaleout.samples import Costs, Measurements
from pipeline import ImageSource
from profiles.provenance import machine
from profiles.report import Document, now

SESSION = "benchmarks.scaleout.child:ScaleoutSession"
_TIMEOUT_S = 600.0


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Opens the photos, and gets ready to measure."""
    return Run(plan, read_source(plan.data, progress, errors, skip_list=plan.skip_list), progress)


class Run:
    """Measures what a plan asks for."""

    def __init__(self, plan: Plan, source: ImageSource, progress: Progress) -> None:
        self._plan, self._source, self._progress = plan, source, progress
        self._created, self._provenance = now(), machine()
        self._costs: Costs | None = None
        self._log = new_log(plan.out / "child.log")
        self._child = Child(SESSION, plan.asked.device, self._log, plan.asked.device, source)

    def document(self, *, complete: bool) -> ScaleoutDocument:
        """Returns the document of what was measured so far."""
        return Document(
            command="scaleout",
            created=self._created,
            complete=complete,
            provenance=self._provenance,
            plan=self._plan.asked,
            dataset=self._source.to_dict(),
            samples=Measurements(costs=self._costs),
            left_out=(),
        )

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures all costs.

        Raises:
          UserError: if the model or the pipeline cannot be measured.
        """
        asked = self._plan.asked
        task = self._progress.add_task("what an image costs here", total=None)
        self._progress.refresh()
        self._ask("backend")
        self._ask("open_model", asked.model, asked.config.batch_size)
        self._costs = self._ask("costs", asked.config, asked.model)
        self._progress.remove_task(task)
        after_round()
        self._log.unlink(missing_ok=True)

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return self._child.ask(method, *arguments, timeout_s=_TIMEOUT_S)
        except (ChildDied, JobRefused) as error:
            raise UserError(f"scaleout: {error}", exit_code=3) from error

    def close(self) -> None:
        self._child.close()

    def kill(self) -> None:
        self._child.kill()
