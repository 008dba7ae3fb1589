"""Measures in a child process what a prediction is made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.command import read_files, take_whole
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.run import ChildRun
from unstall.benchmarks.service.planning.plan import Asked, Plan
from unstall.benchmarks.service.planning.samples import Costs, Measurements
from unstall.pipeline import ImageSource

_SESSION = "benchmarks.service.planning.child:PlanningSession"
_TIMEOUT_S = 600.0
# Costs are measured on at most so many batches: of a large folder one epoch alone would take too long.
_MOST_BATCHES = 64


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Opens the photos, and gets ready to measure.

    Raises:
      UserError: if the photos are not files, or do not fill a batch.
    """
    return Run(plan, read_files(plan.data, progress, errors, skip_list=plan.skip_list), progress)


class Run(ChildRun[Asked, Measurements]):
    """Measures what a plan asks for, on whole batches."""

    command = "service plan"

    def __init__(self, plan: Plan, source: ImageSource, progress: Progress) -> None:
        # For a short batch a worker decodes as many images as for a full one: its images would seem to cost more.
        instead = f"--set batch_size={source.images}"
        batch_size = plan.asked.config.batch_size
        measured = take_whole(source, batch_size, what="A batch", instead=instead, most=_MOST_BATCHES)
        super().__init__(plan.asked, progress, source.to_dict(), plan.out)
        self._model = plan.model
        self._costs: Costs | None = None
        self._start(_SESSION, plan.asked.device, plan.asked.device, measured)

    def samples(self) -> Measurements:
        return Measurements(costs=self._costs)

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures all costs.

        Raises:
          UserError: if the model or the pipeline cannot be measured.
        """
        asked = self._asked
        task = self._progress.add_task("what an image costs here", total=None)
        self._progress.refresh()
        self._ask("backend")
        self._ask("open_model", self._model, asked.config.batch_size)
        self._costs = self._ask("costs", asked.config, self._model, asked.image_size)
        self._progress.remove_task(task)
        after_round()
        self._log.unlink(missing_ok=True)

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return self._child.ask(method, *arguments, timeout_s=_TIMEOUT_S)
        except (ChildDied, JobRefused) as error:
            raise UserError(f"{self.command}: {error}", exit_code=3) from error
