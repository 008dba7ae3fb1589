"""Measures ways to predict in a child process: first what each says of the test photos, then windows in rounds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.devices.fewer_bits.plan import Asked, Plan
from unstall.benchmarks.devices.fewer_bits.samples import LITERT, TENSORFLOW, MeasuredWay, Measurements
from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.photos import Splits, open_splits
from unstall.benchmarks.lab.run import ChildRun
from unstall.profiles.devices import CPU
from unstall.profiles.report import LeftOut

_SESSION = "benchmarks.devices.fewer_bits.child:FewerBitsSession"
# Training takes as long as its passes; a converter seconds, or minutes for a large network.
_TRAIN_TIMEOUT_S, _WAY_TIMEOUT_S, _TIMEOUT_S = 7200.0, 1800.0, 300.0


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Opens the photos, and gets ready to measure."""
    splits = open_splits(plan.data, seed=0, progress=progress, errors=errors, skip_list=plan.skip_list)
    return Run(plan, splits, progress)


class Run(ChildRun[Asked, Measurements]):
    """Measures what a plan asks for."""

    command = "devices --inference"

    def __init__(self, plan: Plan, splits: Splits, progress: Progress) -> None:
        dataset = {"train": splits.train.to_dict(), "test": splits.test.to_dict()}
        super().__init__(plan.asked, progress, dataset, plan.out)
        self._tested_with = splits.how
        self._measured: dict[str, MeasuredWay] = {}
        self._start(_SESSION, CPU, plan.asked, plan.model, splits.train, splits.test)

    def samples(self) -> Measurements:
        return Measurements(tested_with=self._tested_with, ways=tuple(self._measured.values()))

    def measure(self, after_round: Callable[[], object]) -> None:
        """Trains the network, prepares every way, and measures windows in rounds over the ways.

        Raises:
          UserError: if the network cannot be trained, or the child dies.
        """
        asked = self._asked
        task = self._progress.add_task("training", total=asked.rounds)
        self._progress.refresh()
        self._keep(self._ask("prepare", timeout_s=_TRAIN_TIMEOUT_S))
        self._try(f"{TENSORFLOW} bfloat16", "bfloat16")
        self._progress.update(task, description="converting", refresh=True)
        for form in self._try(LITERT, "formats") or ():
            self._try(f"{LITERT} {form}", "litert", form)
        order = random.Random()
        for number in range(asked.rounds):
            for name in order.sample(list(self._measured), len(self._measured)):
                self._progress.update(task, description=name, refresh=True)
                window = self._ask("window", name, number, timeout_s=_TIMEOUT_S)
                way = self._measured[name]
                self._measured[name] = replace(way, windows=(*way.windows, window))
            self._progress.update(task, advance=1, refresh=True)
            after_round()
        self._progress.remove_task(task)
        # Where LiteRT is not installed, the child's output says nothing of it; where anything else failed, it is kept.
        if not any(left_out.who != LITERT for left_out in self._left_out):
            self._log.unlink(missing_ok=True)

    def _try(self, who: str, method: str, *arguments: str) -> Any:
        """Prepares a way, or asks which there are; leaves out what is refused, and returns None then."""
        try:
            answer = self._child.ask(method, *arguments, timeout_s=_WAY_TIMEOUT_S)
        except JobRefused as error:
            self._left_out.append(LeftOut(who=who, reason=str(error)))
            return None
        except ChildDied as error:
            raise self._failed(f"{who}: {error}") from error
        if isinstance(answer, MeasuredWay):
            self._keep(answer)
        return answer

    def _keep(self, way: MeasuredWay) -> None:
        self._measured[way.way] = way

    def _ask(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        try:
            return self._child.ask(method, *arguments, timeout_s=timeout_s)
        except (ChildDied, JobRefused) as error:
            raise self._failed(str(error)) from error

    def _failed(self, reason: str) -> UserError:
        return UserError(f"--inference {self._asked.model}: {reason}", exit_code=3)
