"""Advice on a user's own pipeline: one child that tries remedies for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.child import OPEN_TIMEOUT_S, Child, ChildDied, JobRefused
from unstall.benchmarks.lab.command import new_log
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.run import LabRun
from unstall.benchmarks.tune.plan import DIFF, AdviceAsked, AdvicePlan
from unstall.benchmarks.tune.rounds import SESSION, say_beside
from unstall.pipeline import from_arrays
from unstall.profiles.remedies import Gains, Trial
from unstall.profiles.report import write_atomically

_WINDOW_TIMEOUT_S = 180.0
_CHANGE_TIMEOUT_S = 30.0


def open_run(plan: AdvicePlan, progress: Progress, errors: Console) -> Run:
    """Gets ready to measure; no image is read until the child calls the user's function."""
    return Run(plan, progress)


class Run(LabRun[AdviceAsked, Trial]):
    """Tries what could be changed in a user's pipeline."""

    command = "tune --pipeline"

    def __init__(self, plan: AdvicePlan, progress: Progress) -> None:
        super().__init__(plan.asked, progress, None)
        self._plan = plan
        self._say = say_beside(progress)
        self._trial = Trial()
        self._change: str | None = None
        self._unchanged = ""

    def samples(self) -> Trial:
        return self._trial

    def write_products(self, console: Console, gains: Gains) -> tuple[Path, ...]:
        """Writes the change of the user's file as a diff; prints why there is none where a remedy was chosen."""
        path = self._plan.out / DIFF
        if self._change is not None:
            write_atomically(path, self._change)
            return (path,)
        if gains.chosen is not None:
            console.print(f"no {DIFF}: {self._unchanged}.", soft_wrap=True)
        return ()

    def measure(self, after_round: Callable[[], object]) -> None:
        """Tries every remedy in rounds, and the chosen one again.

        Args:
          after_round: called whenever there are new samples to write.
        Raises:
          UserError: if the function, the pipeline or the model cannot be used.
        """
        asked = self._plan.asked
        source = from_arrays(np.zeros((asked.classes, 1, 1, 3), np.uint8), np.arange(asked.classes))
        log = new_log(self._plan.out / "tune.log")
        child = Child(SESSION, asked.device, log, asked.device, source)
        keep_log = False
        try:
            self._measure(child, after_round)
            try:
                self._change = child.ask("change_of_pipeline", timeout_s=_CHANGE_TIMEOUT_S)
            except JobRefused as error:
                self._unchanged = str(error)
        except ChildDied as error:
            keep_log = True
            raise UserError(f"{self._plan.pipeline}: {error}. See {log}.", exit_code=3) from error
        except JobRefused as error:
            raise UserError(str(error)) from error
        except BaseException:  # `close` would wait for a child that measures
            child.kill()
            raise
        finally:
            child.close()
            if not keep_log:
                log.unlink(missing_ok=True)

    def _measure(self, child: Child, after_round: Callable[[], object]) -> None:
        plan, asked = self._plan, self._plan.asked
        self._say("opening the model")
        child.ask("backend", timeout_s=OPEN_TIMEOUT_S)
        child.ask("open_model", plan.model, asked.batch_size, timeout_s=OPEN_TIMEOUT_S)
        self._say("building the pipeline again")
        limits = asked.limits
        child.ask(
            "open_pipeline", plan.pipeline, plan.model, limits.memory_bytes, limits.budget_s, timeout_s=OPEN_TIMEOUT_S
        )
        self._say("trying remedies")
        while not self._trial.ended:
            self._trial = child.ask("advance_pipeline", timeout_s=limits.budget_s + _WINDOW_TIMEOUT_S)
            after_round()
