"""Advice on a user's own pipeline: one child that builds each change of it, and measures them in rounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from rich.console import Console
from rich.progress import Progress

from benchmarks.lab.child import OPEN_TIMEOUT_S, Child, ChildDied, JobRefused
from benchmarks.lab.command import new_log
from benchmarks.lab.options import UserError
from benchmarks.tune.own.results import AdviceDocument, results_of
from benchmarks.tune.own.samples import AdviceSamples, MeasuredChange, PipelineFacts
from benchmarks.tune.plan import AdvicePlan
from benchmarks.tune.rounds import SESSION, Say, rounds_within, say_beside
from pipeline import from_arrays
from profiles import clock
from profiles.provenance import machine
from profiles.remedies import AS_WRITTEN
from profiles.report import Document, LeftOut, now
from profiles.samples import Sample

_WINDOW_TIMEOUT_S = 180.0
# Rounds in which the chosen change is measured again beside the pipeline as written.
_ROUNDS_AGAIN = 5


def open_run(plan: AdvicePlan, progress: Progress, errors: Console) -> Run:
    """Gets ready to measure; no image is read until the child calls the user's function."""
    return Run(plan, say_beside(progress))


class Rounds:
    """Measures changes in rounds.

    Attributes:
      samples: by the name of the change, without changes that failed.
      left_out: changes that failed, and why.

    Args:
      names: of the changes.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.samples: dict[str, list[Sample]] = {name: [] for name in names}
        self.left_out: list[LeftOut] = []
        self._order = random.Random()

    def measure(self, child: Child, numbers: Iterable[int], say: Say, after_round: Callable[[], object]) -> None:
        """Measures rounds, in an order that is drawn anew in each.

        Raises:
          JobRefused: if the pipeline as written fails.
        """
        for number in numbers:
            say(f"round {number + 1}")
            for name in self._order.sample(list(self.samples), len(self.samples)):
                try:
                    sample = child.ask("pipeline_window", name, number, timeout_s=_WINDOW_TIMEOUT_S)
                    self.samples[name].append(sample)
                except JobRefused as error:
                    if name == AS_WRITTEN:
                        raise
                    self.left_out.append(LeftOut(who=name, reason=str(error)))
                    del self.samples[name]
            after_round()


class Run:
    """Measures what could be changed in a user's pipeline."""

    def __init__(self, plan: AdvicePlan, say: Say) -> None:
        self._plan = plan
        self._say = say
        self._created = now()
        self._provenance = machine()
        self._facts: PipelineFacts | None = None
        self._choosing = self._again = Rounds(())
        self._chosen_first: str | None = None
        self._began_ns = clock.now_ns()
        self._seconds: float | None = None

    def document(self, *, complete: bool) -> AdviceDocument:
        """Returns what was measured so far."""
        return Document(
            command="tune --pipeline",
            created=self._created,
            complete=complete,
            provenance=self._provenance,
            plan=self._plan.asked,
            dataset=None,
            samples=self._samples,
            left_out=(*self._choosing.left_out, *self._again.left_out),
        )

    @property
    def _samples(self) -> AdviceSamples:
        return AdviceSamples(
            facts=self._facts,
            changes=tuple(
                MeasuredChange(name=name, samples=tuple(samples), again=tuple(self._again.samples.get(name, ())))
                for name, samples in self._choosing.samples.items()
            ),
            chosen_first=self._chosen_first,
            seconds=(clock.now_ns() - self._began_ns) / 1e9 if self._seconds is None else self._seconds,
        )

    def close(self) -> None:
        """Does nothing: the child has ended with the measurement."""

    kill = close

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures every change in rounds, and the chosen one again.

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
        except ChildDied as error:
            keep_log = True
            raise UserError(f"{self._plan.pipeline}: {error}. See {log}.", exit_code=3) from error
        except JobRefused as error:
            raise UserError(str(error)) from error
        finally:
            child.close()
            if not keep_log:
                log.unlink(missing_ok=True)
        self._seconds = (clock.now_ns() - self._began_ns) / 1e9

    def _measure(self, child: Child, after_round: Callable[[], object]) -> None:
        plan, asked = self._plan, self._plan.asked
        self._say("opening the model")
        child.ask("backend", timeout_s=OPEN_TIMEOUT_S)
        child.ask("open_model", plan.model, asked.batch_size, timeout_s=OPEN_TIMEOUT_S)
        self._say("building the pipeline again")
        memory_bytes = asked.limits.memory_bytes
        facts = child.ask("open_pipeline", plan.pipeline, plan.model, memory_bytes, timeout_s=OPEN_TIMEOUT_S)
        self._facts = facts
        self._choosing = Rounds([change.name for change in facts.changes])
        self._choosing.measure(child, rounds_within(asked.limits.budget_s, self._began_ns), self._say, after_round)
        chosen = results_of(self._samples, ended=True).chosen
        if chosen is None:
            return
        # The fastest of several owes its place to noise as well, so that the rounds that chose it overestimate it.
        self._chosen_first = chosen.name
        self._again = Rounds([AS_WRITTEN, chosen.name])
        self._again.measure(child, range(_ROUNDS_AGAIN), self._say, after_round)
