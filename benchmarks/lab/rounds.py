"""Measures jobs in rounds, their windows interleaved; replaces a child that hangs or dies, and leaves its job out."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unstall.benchmarks.lab.child import HANG_LEAST_S, HANG_RATIO, OPEN_TIMEOUT_S, Child, ChildDied, JobRefused
from unstall.benchmarks.lab.command import new_log
from unstall.benchmarks.lab.session import Job, JobFacts, ModelFacts
from unstall.pipeline import ImageSource
from unstall.profiles import Device
from unstall.profiles.provenance import usable_cores
from unstall.profiles.samples import Sample
from unstall.profiles.stage_table import AnnotatedFunction, StageTable

# A measured epoch has at most this many images (of which a quick run takes fewer), and at most as many as the model
# alone takes in this many seconds, but at least this many batches, for a steady state. Results are rates for whole
# epochs of the data: the time that an epoch costs at its edges is spread over all images of such an epoch.
MOST_IMAGES, QUICK_IMAGES, _EPOCH_S, _LEAST_BATCHES = 768, 512, 1.0, 12
# The least seconds for a window that reads from storage: a warm epoch does not show how long reading takes.
_HANG_LEAST_COLD_S = 300.0
# Taking a loader apart lasts some seconds, and twice as long where the lines of functions are timed.
_STAGES_TIMEOUT_S = 180.0


@dataclass(slots=True)
class MeasuredJob:
    """A job's facts and samples so far; `cold` is true while the job is also measured with an empty page cache."""

    job: Job
    facts: JobFacts
    samples: list[Sample] = field(default_factory=list)
    cold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A job without a result, or without a result for one state of the page cache, and the reason."""

    job: Job
    device: Device
    reason: str
    page_cache: str = "warm"

    @property
    def label(self) -> str:
        return f"{self.job.variant}, cold" if self.page_cache == "cold" else self.job.variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A window to measure in a round, of a job, or of the model alone: then `of` names the ceiling that jobs share."""

    group: Group
    of: Job | str
    window: str


def run_round(
    turns: Sequence[Turn],
    number: int,
    order: random.Random,
    *,
    done: Callable[[str], None] = lambda variant: None,
    begin: Callable[[Turn, Job], None] = lambda turn, job: None,
) -> None:
    """Measures the windows of a round in an order that is drawn for this round.

    If the order were the same in all rounds, another program that works at regular intervals could disturb the same
    windows in each round, and confidence intervals would be too narrow (docs/measurement.md).

    Args:
      number: the number of the round, from 0.
      done: called with the variant's name after each window that belongs to a single job.
      begin: called with the turn and the job before each window.
    """
    for turn in order.sample(list(turns), len(turns)):
        turn.group.take_turn(turn, number, functools.partial(begin, turn))
        if isinstance(turn.of, Job):
            done(turn.of.variant)


class Group:
    """The jobs that a child measures, and the child, which is replaced if it dies.

    Args:
      device: the device that trains.
      source: all images.
      jobs: the jobs to measure.
      log: the file for the child's output, kept only if something failed; another name beside this file if it exists.
      images: the number of images in a measured epoch, by model and batch size. The first group that prepares a job
        decides and adds the number; groups that share this dictionary use the same number.
      session: the class whose methods answer in the child, as "module:Class".
      most_images: of a measured epoch.
      paths: what is opened of a model whose name in jobs lacks the folders of a file, by that name.
      arguments: more arguments of the class of the session.
    """

    def __init__(
        self,
        device: Device,
        source: ImageSource,
        jobs: Sequence[Job],
        log: Path,
        images: dict[tuple[str, int], int],
        session: str = "benchmarks.lab.session:Session",
        most_images: int = MOST_IMAGES,
        paths: Mapping[str, str] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> None:
        self.device = device
        self.backend: dict[str, Any] = {}
        self.models: dict[str, ModelFacts] = {}
        self.measured: dict[Job, MeasuredJob] = {}
        self.ceilings: dict[str, list[Sample]] = {}
        self.left_out: list[LeftOut] = []
        self._source = source
        self._jobs = list(jobs)
        # With which each model is opened: that of the first of its jobs.
        self._batch_sizes = {job.model: job.config.batch_size for job in reversed(jobs)}
        self.log = new_log(log)
        self._images = images
        self._session = session
        self._most_images = most_images
        self._paths = paths or {}
        self._arguments = arguments
        self._not_again: set[Job] = set()
        self._silent = False
        self._replace = self._replacing = False
        self._child: Child | None = None

    @property
    def jobs(self) -> list[Job]:
        """The jobs that are still measured."""
        return list(self._jobs)

    def open(self) -> None:
        """Starts a new child and opens there the models of the remaining jobs; all models if no job remains.

        A search adds its jobs one by one, so that a child may have to be replaced when no job remains and more follow.

        Raises:
          JobRefused: if the device is missing, or a model cannot be used.
          ChildDied: if the child dies.
        """
        if self._child is not None:
            self._child.kill()
        self._silent = True  # until the child has answered; a refusal is an answer, too
        self._child = Child(self._session, self.device, self.log, self.device, self._source, *self._arguments)
        try:
            self.backend = self._child.ask("backend", timeout_s=OPEN_TIMEOUT_S)
            for model in list(dict.fromkeys(job.model for job in self._jobs)) or self._batch_sizes:
                opened = (model, self._batch_sizes[model], self._paths.get(model))
                self.models[model] = self._child.ask("open_model", *opened, timeout_s=OPEN_TIMEOUT_S)
        except JobRefused:
            self._silent = False
            raise
        self._silent = False

    def prepare(self, job: Job) -> None:
        """Builds a job's loader and runs a warm-up epoch; leaves the job out if that fails."""
        if job not in self._jobs:  # left out with all others, when no new child could be started
            return
        key = (job.model, job.config.batch_size)
        images = self._images.setdefault(
            key, window_images(self.models[job.model], job.config.batch_size, self._most_images)
        )
        # Preparing trains an epoch, and may read the images of the epoch once more.
        timeout_s = OPEN_TIMEOUT_S + HANG_RATIO * images / self.models[job.model].step_images_per_sec
        facts = self._ask(job, "prepare", job, images, timeout_s=timeout_s)
        if facts is not None and job not in self.measured:
            self.measured[job] = MeasuredJob(job, facts, [facts.warmup], cold=job.cold)
            if facts.warm_only is not None:
                self._leave_out_cold(job, facts.warm_only)

    def turns(self, *, loader: bool, model_alone: bool = True) -> list[Turn]:
        """Returns the windows of a round; jobs with the same ceiling share the windows of the model alone."""
        turns: dict[Turn, None] = {}
        for job in self.jobs:
            facts = self.measured[job].facts
            if model_alone:
                alone = ("bare",) * facts.behind_layers + ("resident",) + ("replay",) * self._replays
                turns |= dict.fromkeys(Turn(group=self, of=facts.ceiling, window=window) for window in alone)
            own = ("loader",) * loader + ("train",) + ("cold",) * job.cold
            turns |= dict.fromkeys(Turn(group=self, of=job, window=window) for window in own)
        return list(turns)

    def take_turn(self, turn: Turn, number: int, begin: Callable[[Job], None] = lambda job: None) -> None:
        """Measures a window, unless its job was left out before.

        Args:
          number: the number of the round, from 0.
          begin: called with the job before the window.
        """
        if isinstance(turn.of, str):
            sharing = [job for job in self.jobs if self.measured[job].facts.ceiling == turn.of]
            if sharing:
                begin(sharing[0])
                self._window(sharing[0], turn.window, number, self.ceilings.setdefault(turn.of, []))
        elif turn.of in self._jobs and self._can_be_measured(turn.of, turn.window):
            begin(turn.of)
            self._window(turn.of, turn.window, number, self.measured[turn.of].samples)

    def _can_be_measured(self, job: Job, window: str) -> bool:
        if window == "again":
            return job not in self._not_again
        return window != "cold" or self.measured[job].cold

    def add(self, job: Job) -> None:
        """Adds a job whose model is open already, and prepares the job."""
        self._jobs.append(job)
        self.prepare(job)

    def retire(self, job: Job) -> None:
        """Stops measuring a job; its samples stay."""
        self._jobs.remove(job)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the session that concerns no job in particular.

        Raises:
          JobRefused: if the method refuses or fails.
          ChildDied: if the child dies.
        """
        assert self._child is not None
        return self._child.ask(method, *arguments, timeout_s=OPEN_TIMEOUT_S)

    def stages(self, job: Job, lines: bool) -> tuple[StageTable, tuple[AnnotatedFunction, ...]]:
        """Measures the stages of a job's loader. Where that fails, the returned table says why."""
        assert self._child is not None
        try:
            table, annotated = self._child.ask("stages", job, lines, timeout_s=_STAGES_TIMEOUT_S)
            return table, annotated
        except (JobRefused, ChildDied) as error:
            return StageTable(cores=usable_cores(), reason=str(error)), ()

    @property
    def _replays(self) -> bool:
        """Whether to measure transfers to the device: an emulated device has no memory to which to transfer."""
        return self.device.kind != "emulated"

    def _window(self, job: Job, window: str, number: int, samples: list[Sample]) -> None:
        foreseen_s = self.measured[job].facts.warmup.outer_ns / 1e9 * self.measured[job].facts.epochs
        least_s = _HANG_LEAST_COLD_S if window == "cold" else HANG_LEAST_S
        timeout_s = max(least_s, HANG_RATIO * foreseen_s)
        sample = self._ask(job, "window", job, window, number, timeout_s=timeout_s)
        if sample is not None:
            samples.append(sample)

    def _ask(self, job: Job, method: str, *arguments: Any, timeout_s: float) -> Any:
        assert self._child is not None
        try:
            return self._child.ask(method, *arguments, timeout_s=timeout_s)
        except (JobRefused, ChildDied) as error:
            # A job that fails in a window "cold" or "again" keeps its warm result.
            leave_out = {("cold",): self._leave_out_cold, ("again",): self._leave_out_again}
            leave_out.get(arguments[1:2], self._leave_out)(job, str(error))
            self._replace = self._replace or isinstance(error, ChildDied)
        if self._replace and not self._replacing:
            self._replace_child()
        return None

    def _leave_out(self, job: Job, reason: str) -> None:
        self._jobs.remove(job)
        self.left_out.append(LeftOut(job=job, device=self.device, reason=reason))

    def _leave_out_cold(self, job: Job, reason: str) -> None:
        self.measured[job].cold = False
        self.left_out.append(LeftOut(job=job, device=self.device, reason=reason, page_cache="cold"))

    def _leave_out_again(self, job: Job, reason: str) -> None:
        self._not_again.add(job)

    def _replace_child(self) -> None:
        """Starts a new child and prepares the remaining jobs there; their samples stay."""
        self._replacing = True
        while self._replace:
            self._replace = False
            try:
                self.open()
            except (ChildDied, JobRefused) as error:
                for job in self.jobs:
                    self._leave_out(job, str(error))
                break
            for job in self.jobs:
                if job in self.measured and not self._replace:
                    self.prepare(job)
        self._replacing = False

    def close(self) -> None:
        """Ends the child. Keeps its log only if the child never answered or a job failed."""
        if self._child is not None:
            self._child.close()
        self._remove_log()

    def kill(self) -> None:
        """Ends the child at once. Keeps its log only if the child never answered or a job failed."""
        if self._child is not None:
            self._child.kill()
        self._remove_log()

    def _remove_log(self) -> None:
        # A job that by its kind can only be measured warm has not failed.
        foreseen = {measured.facts.warm_only for measured in self.measured.values()}
        failed = any(left_out.page_cache == "warm" or left_out.reason not in foreseen for left_out in self.left_out)
        if not self._silent and not failed:
            self.log.unlink(missing_ok=True)


def window_images(model: ModelFacts, batch_size: int, most_images: int = MOST_IMAGES) -> int:
    """Returns the number of images in a measured epoch, which is a number of whole batches."""
    images = min(most_images, int(model.step_images_per_sec * _EPOCH_S))
    return max(_LEAST_BATCHES, images // batch_size) * batch_size
