"""Runs one part of `truth`, and keeps what each of its groups came to so far."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import Progress

import unstall
from unstall.benchmarks.lab.run import LabRun
from unstall.benchmarks.truth.plan import Asked, Plan
from unstall.benchmarks.truth.promises import ON_GPU
from unstall.benchmarks.truth.samples import Group, Measurements


def open_planted(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Loads TensorFlow, without a GPU unless one is measured, and gets ready to measure planted loads."""
    _quiet_tensorflow()
    if not set(ON_GPU) & set(plan.asked.groups):
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    return Run(plan, progress, unstall.of_ours("benchmarks.truth.groups:measure")(plan))


def open_watching(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Loads TensorFlow, and gets ready to train with and without the monitor."""
    _quiet_tensorflow()
    return Run(plan, progress, unstall.of_ours("benchmarks.truth.watching:measure")(plan))


def _quiet_tensorflow() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # TensorFlow warns where many small models are traced, as here.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


@contextlib.contextmanager
def neighbours(count: int, work: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """Runs a function in so many processes, which may be none, until the block ends."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work, args=arguments, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


class Run(LabRun[Asked, Measurements]):
    """Measures the groups of a part.

    Args:
      groups: yields a group with all that was measured of it so far, after each round.
      dataset: what is compared; None where nothing of a user's is.
      earlier: groups that an earlier run measured, which this run continues.
    """

    command = "truth"

    def __init__(
        self,
        plan: Plan,
        progress: Progress,
        groups: Generator[Group, None, None],
        dataset: Mapping[str, Any] | None = None,
        earlier: Sequence[Group] = (),
    ) -> None:
        super().__init__(plan.asked, progress, dataset)
        self._groups = groups
        self._measured = {group.name: group for group in earlier}

    def samples(self) -> Measurements:
        return Measurements(groups=tuple(self._measured.values()))

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures every group.

        Args:
          after_round: called after each round of each group.
        """
        task = self._progress.add_task(self._asked.part, total=None)
        with contextlib.closing(self._groups):  # ends its children and removes its files, also where a signal ends it
            for group in self._groups:
                self._measured[group.name] = group
                self._progress.update(task, description=group.name, advance=1, refresh=True)
                after_round()
        self._progress.remove_task(task)
