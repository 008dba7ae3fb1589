"""Measures subjects in their own processes, in rounds over the subjects."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.child import images_timeout_s
from unstall.benchmarks.lab.command import read_source, take_whole
from unstall.benchmarks.lab.run import LabRun
from unstall.benchmarks.trainers.plan import Asked, Plan
from unstall.benchmarks.trainers.processes import Trainers, TrainersFailed
from unstall.benchmarks.trainers.samples import Measurements, ProcessEpoch
from unstall.benchmarks.trainers.subjects import SUBJECTS
from unstall.pipeline import ImageSource
from unstall.profiles.report import LeftOut

# Each request trains for so many epochs, in which every process may decode all images.
_EPOCHS = 2


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Opens the photos, and gets ready to measure."""
    return Run(plan, read_source(plan.data, progress, errors, skip_list=plan.skip_list), progress)


class Run(LabRun[Asked, Measurements]):
    """Measures what a plan asks for.

    Raises:
      UserError: if there are too few photos for a step of all trainers.
    """

    command = "trainers"

    def __init__(self, plan: Plan, source: ImageSource, progress: Progress) -> None:
        step_images = plan.asked.config.batch_size * plan.asked.trainers
        source = take_whole(source, step_images, what="A step of all trainers", instead="a smaller --batch-size")
        super().__init__(plan.asked, progress, source.to_dict())
        self._source, self._out = source, plan.out
        self._asked_of_children = replace(plan.asked, model=plan.model)
        # A process that waits for another one hangs until the time is over.
        self._timeout_s = images_timeout_s(_EPOCHS * plan.asked.trainers * source.images)
        self._epochs: list[ProcessEpoch] = []
        self._trainers: dict[str, Trainers] = {}

    def samples(self) -> Measurements:
        return Measurements(epochs=tuple(self._epochs))

    def measure(self, after_round: Callable[[], object]) -> None:
        """Starts the processes of every subject, and measures epochs in rounds over the subjects.

        A subject that fails is left out; what was measured of it before stays.
        """
        asked = self._asked
        task = self._progress.add_task("starting", total=asked.rounds)
        for name in asked.subjects:
            self._progress.update(task, description=f"starting {name}", refresh=True)
            if SUBJECTS[name].backend == "jax" and importlib.util.find_spec("jax") is None:
                self._left_out.append(LeftOut(who=name, reason="JAX is not installed: pip install jax"))
            else:
                self._ask(name, "start")
        order = random.Random()
        for number in range(asked.rounds):
            for name in order.sample(list(self._trainers), len(self._trainers)):
                self._progress.update(task, description=name, refresh=True)
                self._epochs += self._ask(name, "epoch", number)
            self._progress.update(task, advance=1, refresh=True)
            after_round()
        self._progress.remove_task(task)

    def _ask(self, name: str, method: str, *arguments: Any) -> list[Any]:
        """Asks the processes of a subject, which the first request starts.

        Returns:
          Their answers; none if one of them failed, which leaves the subject out. All have ended then, and their logs
          stay.
        """
        try:
            if name not in self._trainers:
                self._trainers[name] = Trainers(name, self._asked_of_children, self._source, self._out)
            return self._trainers[name].ask(method, *arguments, timeout_s=self._timeout_s)
        except TrainersFailed as error:
            reason = str(error).replace(self._asked_of_children.model, self._asked.model)  # names no folder
            self._left_out.append(LeftOut(who=name, reason=reason))
            self._trainers.pop(name, None)
            return []

    def close(self) -> None:
        for trainers in self._trainers.values():
            trainers.close()

    def kill(self) -> None:
        for trainers in self._trainers.values():
            trainers.kill()
