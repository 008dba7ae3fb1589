"""Measures in a child process what an image of the planned size costs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.capacity.plan import Asked, Plan
from unstall.benchmarks.capacity.samples import Measurements
from unstall.benchmarks.lab.command import read_files
from unstall.benchmarks.scaleout.measure import CostsRun
from unstall.pipeline import ImageSource
from unstall.profiles.devices import CPU


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Opens the photos, and gets ready to measure.

    Raises:
      UserError: if the photos are not files.
    """
    return Run(plan, read_files(plan.data, progress, errors, skip_list=plan.skip_list), progress)


class Run(CostsRun[Asked, Measurements]):
    """Measures what a plan asks for."""

    command = "capacity"

    def __init__(self, plan: Plan, source: ImageSource, progress: Progress) -> None:
        file_bytes = sum(os.path.getsize(path) for path in source.paths) / source.images
        super().__init__(plan.asked, progress, source, CPU, plan.out, plan.asked.config.batch_size)
        runs = plan.runs
        self._measured = Measurements(
            cut=None,
            constants=None,
            loader_us=0.0,
            file_bytes=file_bytes,
            pools=runs.plan.pools if runs is not None else (),
            runs=runs.samples if runs is not None else None,
        )

    def samples(self) -> Measurements:
        return self._measured

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures all costs.

        Raises:
          UserError: if the pipeline cannot be measured.
        """
        config = self._asked.config
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
