"""Measures in a child process what a decision is made from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.command import read_files, take_whole
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.run import ChildRun, P, S
from unstall.benchmarks.scaleout.plan import Asked, Plan
from unstall.benchmarks.scaleout.samples import Costs, Measurements
from unstall.pipeline import ImageSource
from unstall.profiles import Device

SESSION = "benchmarks.scaleout.child:ScaleoutSession"
_TIMEOUT_S = 600.0
# Costs are measured on at most so many batches: of a large folder one epoch alone would take too long.
_MOST_BATCHES = 64


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Opens the photos, and gets ready to measure.

    Raises:
      UserError: if the photos are not files.
    """
    return Run(plan, read_files(plan.data, progress, errors, skip_list=plan.skip_list), progress)


class CostsRun(ChildRun[P, S]):
    """A run whose costs a child process measures, on whole batches.

    Args:
      batch_size: of the pipeline.
    Raises:
      UserError: if the photos do not fill a batch.
    """

    def __init__(
        self, asked: P, progress: Progress, source: ImageSource, device: Device, out: Path, batch_size: int
    ) -> None:
        # For a short batch a worker decodes as many images as for a full one: its images would seem to cost more.
        instead = f"--set batch_size={source.images}"
        measured = take_whole(source, batch_size, what="A batch", instead=instead, most=_MOST_BATCHES)
        super().__init__(asked, progress, source.to_dict(), out)
        self._start(SESSION, device, device, measured)

    def _ask(self, method: str, *arguments: Any) -> Any:
        """Asks the child.

        Raises:
          UserError: if it cannot measure that.
        """
        try:
            return self._child.ask(method, *arguments, timeout_s=_TIMEOUT_S)
        except (ChildDied, JobRefused) as error:
            raise UserError(f"{self.command}: {error}", exit_code=3) from error


class Run(CostsRun[Asked, Measurements]):
    """Measures what a plan asks for."""

    command = "scaleout"

    def __init__(self, plan: Plan, source: ImageSource, progress: Progress) -> None:
        super().__init__(plan.asked, progress, source, plan.asked.device, plan.out, plan.asked.config.batch_size)
        self._model = plan.model
        self._costs: Costs | None = None

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
        self._costs = self._ask("costs", asked.config, self._model)
        self._progress.remove_task(task)
        after_round()
        self._log.unlink(missing_ok=True)
