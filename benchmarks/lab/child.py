"""Runs the children: rounds interleaved over all of them, and a child that hangs or dies replaced without its job."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.lab.command import new_log
from benchmarks.lab.serve import serve
from benchmarks.lab.session import Job, JobFacts, ModelFacts
from pipeline import ImageSource
from profiles import Device
from profiles.provenance import usable_cores
from profiles.samples import Sample
from profiles.stage_table import AnnotatedFunction, StageTable, without_stages

# Before a child answers at all: imports, the first trace of a large network.
OPEN_TIMEOUT_S = 300.0
# A window that takes this many times as long as foreseen, and at least so long, hangs.
_HANG_RATIO, _HANG_LEAST_S = 30.0, 60.0
# A cold one reads from storage, of which a warm epoch says nothing.
_HANG_LEAST_COLD_S = 300.0
# A loader is taken apart in some seconds, and twice so long with the times of its lines.
_STAGES_TIMEOUT_S = 180.0
# A child that was asked to leave gets this long before it is killed.
_LEAVE_S = 2.0


class ChildDied(Exception):
    """The child is gone, or was ended because it hung; the message says which."""


class ChildHung(ChildDied):
    """The child did not answer in time and was ended."""


class JobRefused(Exception):
    """The child lives and says why it cannot do this."""


class Child:
    """One measuring process.

    Args:
      session: the class that answers there, as "module:Class". This process does not import it, nor what it imports.
      device: what it measures; other devices are hidden from it.
      log: a file for its output.
      arguments: of the class.
    """

    def __init__(self, session: str, device: Device, log: Path, *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, session, device, str(log), arguments), name="unstall child"
        )
        self._process.start()
        theirs.close()

    def ask(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        """Asks for one thing and waits for the answer.

        Raises:
          JobRefused: if the child says no.
          ChildDied: if it is gone or does not answer in time.
        """
        try:
            self._connection.send((method, arguments))
            if not self._connection.poll(timeout_s):
                self.kill()
                raise ChildHung(f"no answer within {timeout_s:.0f} s: it hung and was ended")
            kind, value = self._connection.recv()
        except (EOFError, OSError) as error:  # a pipe that ends within an answer is the latter, of no kind
            self._process.join(5)
            self.kill()  # what it forked may outlive it
            raise ChildDied(_cause(self._process.exitcode)) from error
        if kind != "ok":
            raise JobRefused(value)
        return value

    def close(self) -> None:
        """Lets the child remove what it wrote, then ends it."""
        with contextlib.suppress(ChildDied, JobRefused):
            self.ask("close", timeout_s=10)
            self._process.join(5)
        self.kill()

    def kill(self) -> None:
        """Ends the child and all that it started."""
        pid = self._process.pid
        if self._process.is_alive():
            self._process.terminate()  # lets it remove what it wrote
            self._process.join(_LEAVE_S)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            if self._process.is_alive():
                self._process.kill()
        self._process.join(5)


def _cause(exit_code: int | None) -> str:
    if exit_code == -signal.SIGKILL:
        return "the process was killed; most likely the machine ran out of memory"
    if exit_code is not None and exit_code < 0:
        return f"the process died of signal {signal.Signals(-exit_code).name}"
    return f"the process ended with exit code {exit_code}"


@dataclass(slots=True)
class MeasuredJob:
    """A job's facts and samples so far; `cold` while it is measured with an empty page cache as well."""

    job: Job
    facts: JobFacts
    samples: list[Sample] = field(default_factory=list)
    cold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A job without a result, or without that for one page cache, and why."""

    job: Job
    device: Device
    reason: str
    page_cache: str = "warm"

    @property
    def label(self) -> str:
        return f"{self.job.variant}, cold" if self.page_cache == "cold" else self.job.variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A window of a round: of a job, or of the model alone, by the name of the ceiling that jobs share."""

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
    """Measures the windows of a round, in an order that is drawn anew.

    An order that repeats meets the rhythm of another program in step, and then intervals are too narrow
    (docs/measurement.md).

    Args:
      number: of the round, from 0.
      done: called with the variant's name after each window of a job's own.
      begin: called with the turn and the job before each window.
    """
    for turn in order.sample(list(turns), len(turns)):
        turn.group.take_turn(turn, number, functools.partial(begin, turn))
        if isinstance(turn.of, Job):
            done(turn.of.variant)


class Group:
    """The jobs that one child measures, and the child, replaced when it dies.

    Args:
      device: what trains.
      source: all images.
      jobs: what to measure.
      log: where the child's own output goes, or beside it; kept only if something went wrong.
      images: of an epoch of the measurement, by model and batch size; decided once, for all groups of a device.
      session: what answers in the child, as "module:Class".
    """

    def __init__(
        self,
        device: Device,
        source: ImageSource,
        jobs: Sequence[Job],
        log: Path,
        images: dict[tuple[str, int], int],
        session: str = "benchmarks.lab.session:Session",
    ) -> None:
        self.device = device
        self.backend: dict[str, Any] = {}
        self.models: dict[str, ModelFacts] = {}
        self.measured: dict[Job, MeasuredJob] = {}
        self.ceilings: dict[str, list[Sample]] = {}
        self.left_out: list[LeftOut] = []
        self._source = source
        self._jobs = list(jobs)
        self.log = new_log(log)
        self._images = images
        self._session = session
        self._not_again: set[Job] = set()
        self._silent = False
        self._replace = self._replacing = False
        self._child: Child | None = None

    @property
    def jobs(self) -> list[Job]:
        """Those that still run."""
        return list(self._jobs)

    def open(self) -> None:
        """Starts the child and opens the models.

        Raises:
          JobRefused: if the device is not there, or a model cannot be used.
          ChildDied: if the child does.
        """
        if self._child is not None:
            self._child.kill()
        self._silent = True  # until it has answered, be it with a refusal
        self._child = Child(self._session, self.device, self.log, self.device, self._source)
        try:
            self.backend = self._child.ask("backend", timeout_s=OPEN_TIMEOUT_S)
            for model in dict.fromkeys(job.model for job in self._jobs):
                batch_size = next(job.config.batch_size for job in self._jobs if job.model == model)
                self.models[model] = self._child.ask("open_model", model, batch_size, timeout_s=OPEN_TIMEOUT_S)
        except JobRefused:
            self._silent = False
            raise
        self._silent = False

    def prepare(self, job: Job) -> None:
        """Builds and warms up a job; leaves it out if that fails."""
        key = (job.model, job.config.batch_size)
        images = self._images.setdefault(key, window_images(self.models[job.model], job.config.batch_size))
        # It trains one epoch, and reads it once more.
        timeout_s = OPEN_TIMEOUT_S + _HANG_RATIO * images / self.models[job.model].step_images_per_sec
        facts = self._ask(job, "prepare", job, images, timeout_s=timeout_s)
        if facts is not None and job not in self.measured:
            self.measured[job] = MeasuredJob(job, facts, [facts.warmup], cold=job.cold)
            if facts.warm_only is not None:
                self._leave_out_cold(job, facts.warm_only)

    def turns(self, *, loader: bool, model_alone: bool = True) -> list[Turn]:
        """Returns the windows of a round, those of the model alone once for all jobs that share them."""
        found: dict[Turn, None] = {}
        for job in self.jobs:
            facts = self.measured[job].facts
            if model_alone:
                alone = ("bare",) * facts.behind_layers + ("resident",) + ("replay",) * self._replays
                found |= dict.fromkeys(Turn(group=self, of=facts.ceiling, window=window) for window in alone)
            own = ("loader",) * loader + ("train",) + ("cold",) * job.cold
            found |= dict.fromkeys(Turn(group=self, of=job, window=window) for window in own)
        return list(found)

    def take_turn(self, turn: Turn, number: int, begin: Callable[[Job], None] = lambda job: None) -> None:
        """Measures a window, unless its job was left out before.

        Args:
          number: of the round, from 0.
          begin: called with the job before.
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
        """Takes in one more job, of a model that is open, and prepares it."""
        self._jobs.append(job)
        self.prepare(job)

    def retire(self, job: Job) -> None:
        """Measures a job no more; what it has measured stays."""
        self._jobs.remove(job)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Asks the session for something that belongs to no job.

        Raises:
          JobRefused: if it says no.
          ChildDied: if the child does.
        """
        assert self._child is not None
        return self._child.ask(method, *arguments, timeout_s=OPEN_TIMEOUT_S)

    def stages(self, job: Job, lines: bool) -> tuple[StageTable, tuple[AnnotatedFunction, ...]]:
        """Takes a job's loader apart; a loader that cannot be has a table that says why."""
        assert self._child is not None
        try:
            table, annotated = self._child.ask("stages", job, lines, timeout_s=_STAGES_TIMEOUT_S)
            return table, annotated
        except (JobRefused, ChildDied) as error:
            return without_stages(str(error), cores=usable_cores()), ()

    @property
    def _replays(self) -> bool:
        """An emulated device has no memory of its own to transfer to."""
        return self.device.kind != "emulated"

    def _window(self, job: Job, window: str, number: int, samples: list[Sample]) -> None:
        foreseen_s = self.measured[job].facts.warmup.outer_ns / 1e9 * self.measured[job].facts.epochs
        least_s = _HANG_LEAST_COLD_S if window == "cold" else _HANG_LEAST_S
        timeout_s = max(least_s, _HANG_RATIO * foreseen_s)
        sample = self._ask(job, "window", job, window, number, timeout_s=timeout_s)
        if sample is not None:
            samples.append(sample)

    def _ask(self, job: Job, method: str, *arguments: Any, timeout_s: float) -> Any:
        assert self._child is not None
        try:
            return self._child.ask(method, *arguments, timeout_s=timeout_s)
        except (JobRefused, ChildDied) as error:
            # What cannot be done cold may well be done warm, and who fails when measured again has been measured.
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
        """Starts afresh with the jobs that are left; what they have measured stays."""
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
        """Ends the child; its log is kept only where it died unasked or a job failed."""
        if self._child is not None:
            self._child.close()
        self._remove_log()

    def kill(self) -> None:
        """Ends the child at once, and what it wrote for itself."""
        if self._child is not None:
            self._child.kill()
        self._remove_log()

    def _remove_log(self) -> None:
        # That a job can be measured warm only is no failure.
        foreseen = {one.facts.warm_only for one in self.measured.values()}
        failed = [one for one in self.left_out if one.page_cache == "warm" or one.reason not in foreseen]
        if not self._silent and not failed:
            self.log.unlink(missing_ok=True)


# An epoch of the measurement: at most so many images, or those of so many seconds of the model's own steps, but enough
# batches for a steady state. Results are rates; an epoch's edges are spread over the epoch in use.
_MOST_IMAGES, _EPOCH_S, _LEAST_BATCHES = 768, 1.0, 12


def window_images(model: ModelFacts, batch_size: int) -> int:
    """Returns the images of an epoch of the measurement: whole batches."""
    images = min(_MOST_IMAGES, int(model.step_images_per_sec * _EPOCH_S))
    return max(_LEAST_BATCHES, images // batch_size) * batch_size
