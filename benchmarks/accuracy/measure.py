"""Trains the runs of a plan, each in a child process of its own, and keeps their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.accuracy.parser import RUNGS
from unstall.benchmarks.accuracy.plan import Asked, Plan, Run
from unstall.benchmarks.accuracy.report import AccuracyDocument
from unstall.benchmarks.accuracy.samples import EndedRun, Measurements, Order, State, Trained
from unstall.benchmarks.lab.child import Child, ChildDied, JobRefused
from unstall.benchmarks.lab.command import devices_here, new_log
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.photos import Splits, open_splits
from unstall.benchmarks.lab.run import LabRun
from unstall.profiles import Device, clock
from unstall.profiles.report import LeftOut

_LOG = "children.log"
# In the child, a thread that does not train answers: a child that gives no answer for this long hangs.
_ANSWER_S = 120.0
_SESSION = "benchmarks.accuracy.child:RunSession"
# Time for imports and drivers. A driver that takes longer hangs.
_BACKEND_S = 300.0
# A run hangs if its state does not change for this long. Most time goes by between two states when the network is
# traced and compiled, and when the test photos are read for the first time.
_STUCK_S = 1800.0


def device_here(splits: Splits, log: Path, errors: Console) -> Device:
    """Returns the GPU if Keras can use it, else the CPU; prints why a GPU is left out."""
    *_, best = devices = devices_here()
    if best.kind == "gpu":
        try:
            _check_device(best, splits, log)
        except (ChildDied, JobRefused) as error:
            errors.print(f"left out gpu: {error}", style="yellow")
            return devices[0]
    return best


def _check_device(device: Device, splits: Splits, log: Path) -> None:
    """Asks a child whether Keras can use a device; keeps the child's log only if the child dies.

    Raises:
      JobRefused: if Keras cannot.
      ChildDied: if the child dies.
    """
    log = new_log(log)
    child = Child(_SESSION, device, log, device, splits.train, splits.test)
    try:
        child.ask("backend", timeout_s=_BACKEND_S)
        child.close()
        log.unlink(missing_ok=True)
    except JobRefused:
        log.unlink(missing_ok=True)
        raise
    finally:
        child.kill()


def open_ladder(plan: Plan, progress: Progress, errors: Console) -> Ladder:
    """Opens the photos, chooses the device, and gets ready to train.

    Raises:
      UserError: if the photos are not of two classes, or Keras cannot use the GPU that was asked for.
    """
    # seed=0, not a run's seed: all runs are tested with the same photos.
    splits = open_splits(plan.data, seed=0, progress=progress, errors=errors, skip_list=plan.skip_list)
    if len(splits.train.class_names) != 2:
        raise UserError(f"--data must be of two classes. Received: {len(splits.train.class_names)}.")
    log = plan.out / _LOG
    device = plan.device or device_here(splits, log, errors)
    if plan.device is not None and device.kind == "gpu":
        try:
            _check_device(device, splits, log)
        except (ChildDied, JobRefused) as error:
            raise UserError(f"--device gpu: {error}", exit_code=3) from error
    return Ladder(plan.asked, splits, device, log, progress)


class Ladder(LabRun[Asked, Measurements]):
    """Trains the runs of a plan.

    Args:
      log: the file for the children's output, removed if no run failed.
    """

    command = "accuracy"

    def __init__(self, asked: Asked, splits: Splits, device: Device, log: Path, progress: Progress) -> None:
        super().__init__(asked, progress, {"train": splits.train.to_dict(), "test": splits.test.to_dict()})
        self._trained: dict[Run, Trained] = {}
        self._failures: dict[Run, str] = {}
        self._splits = splits
        self._device = device
        self._log = log

    def document(self, *, complete: bool) -> AccuracyDocument:
        """Returns the document of the runs so far; the document is never complete if a run failed."""
        document = super().document(complete=complete and not self._failures)
        backend = next((trained.backend for trained in self._trained.values()), {})
        return replace(document, provenance={**document.provenance, **backend})

    def samples(self) -> Measurements:
        runs = tuple(EndedRun(run=run, trained=self._trained[run]) for run in self._asked.runs if run in self._trained)
        return Measurements(device=self._device.name, tested_with=self._splits.how, runs=runs)

    def left_out(self) -> list[LeftOut]:
        return [LeftOut(who=run.label, reason=reason) for run, reason in self._failures.items()]

    def measure(self, after_round: Callable[[], object]) -> None:
        """Trains all runs; a run that fails is left out.

        Args:
          after_round: called after each run, to write the results so far.
        """
        runs, progress = self._asked.runs, self._progress
        images = self._asked.passes(self._splits.train.images) * self._splits.train.images
        log = new_log(self._log)
        task = progress.add_task("", total=len(runs) * images)
        try:
            for number, run in enumerate(runs):
                progress.update(task, description=run.label, completed=number * images, refresh=True)

                def tell(state: State, done: int = number * images) -> None:
                    progress.update(task, completed=done + state.images, refresh=True)

                try:
                    self._trained[run] = self._make(run, tell, log)
                except (ChildDied, JobRefused) as error:
                    self._failures[run] = str(error)
                after_round()
        finally:
            progress.remove_task(task)
            if not self._failures:
                log.unlink(missing_ok=True)

    def _make(self, run: Run, tell: Callable[[State], None], log: Path) -> Trained:
        rung = RUNGS[run.rung]
        order = Order(
            model=rung.model,
            config=self._asked.config(run),
            passes=self._asked.passes(self._splits.train.images),
            script=run.pipeline == "generator",  # the tutorial's pipeline, for the tutorial's script
        )
        child = Child(_SESSION, self._device, log, self._device, self._splits.train, self._splits.test)
        try:
            child.ask("begin", order, timeout_s=_ANSWER_S)
            before, since_ns = State(), clock.now_ns()
            while True:
                state: State = child.ask("look", timeout_s=_ANSWER_S)
                tell(state)
                if state.trained is not None:
                    child.close()
                    return state.trained
                if state.failure is not None:
                    raise JobRefused(state.failure)
                if state != before:
                    before, since_ns = state, clock.now_ns()
                elif clock.now_ns() - since_ns > _STUCK_S * 1e9:
                    raise ChildDied(f"nothing was trained for {_STUCK_S:.0f} s: it hung and was ended")
        finally:
            child.kill()
