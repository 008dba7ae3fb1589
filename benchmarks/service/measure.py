"""Measures subjects in a child process, in rounds: threads, and services of different numbers of workers."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.child import ChildDied, JobRefused, images_timeout_s
from unstall.benchmarks.lab.command import read_source
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.run import ChildRun
from unstall.benchmarks.service.plan import Asked, Plan
from unstall.benchmarks.service.samples import MeasuredService, Measurements, WorkerWindow
from unstall.pipeline import ImageSource
from unstall.profiles.devices import CPU
from unstall.profiles.provenance import usable_threads
from unstall.profiles.report import LeftOut

_SESSION = "benchmarks.service.child:ServiceSession"
# Stands in the place of this host's name, which the document does not keep, in the names of its workers.
_HERE = "this host"
# A start, which waits for the workers and reads an epoch, and a window of few images, take less.
_LEAST_TIMEOUT_S = 600.0


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Opens the photos, and gets ready to measure."""
    return Run(plan, read_source(plan.data, progress, errors, skip_list=plan.skip_list), progress)


class Run(ChildRun[Asked, Measurements]):
    """Measures what a plan asks for."""

    command = "service local"

    def __init__(self, plan: Plan, source: ImageSource, progress: Progress) -> None:
        super().__init__(plan.asked, progress, source.to_dict(), plan.out)
        self._measured: dict[str, MeasuredService] = {}
        self._timeout_s = _timeout_s(source.images, plan.asked.images_per_sec)
        self._start(_SESSION, CPU, plan.asked, source)

    def samples(self) -> Measurements:
        subjects = tuple(map(_without_host, self._measured.values()))
        return Measurements(host=_HERE, cores=usable_threads(), subjects=subjects)

    def measure(self, after_round: Callable[[], object]) -> None:
        """Starts every subject, and measures windows in rounds over the subjects.

        Raises:
          UserError: if the child dies.
        """
        asked = self._asked
        task = self._progress.add_task("starting", total=asked.rounds)
        self._progress.refresh()
        for service in asked.services:
            try:
                self._measured[service] = self._ask("start", service)
            except JobRefused as error:
                self._left_out.append(LeftOut(who=service, reason=str(error)))
        order = random.Random()
        for number in range(asked.rounds):
            for service in order.sample(list(self._measured), len(self._measured)):
                self._progress.update(task, description=service, refresh=True)
                try:
                    window = self._ask("window", service, number)
                except JobRefused as error:
                    raise UserError(f"{service}: {error}", exit_code=3) from error
                subject = self._measured[service]
                self._measured[service] = replace(subject, windows=(*subject.windows, window))
            self._progress.update(task, advance=1, refresh=True)
            after_round()
        self._progress.remove_task(task)
        if not self._left_out:
            self._log.unlink(missing_ok=True)

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return self._child.ask(method, *arguments, timeout_s=self._timeout_s)
        except ChildDied as error:
            raise UserError(f"service local: {error}", exit_code=3) from error


def _without_host(subject: MeasuredService) -> MeasuredService:
    """Returns a subject whose workers on this host are named without the host's name."""
    return replace(
        subject,
        facts=tuple(replace(facts, worker=_nameless(facts.worker)) for facts in subject.facts),
        windows=tuple(
            replace(window, workers=tuple(map(_nameless_window, window.workers))) for window in subject.windows
        ),
    )


def _nameless_window(window: WorkerWindow) -> WorkerWindow:
    first, last = (replace(account, worker=_nameless(account.worker)) for account in (window.first, window.last))
    return replace(window, first=first, last=last)


def _nameless(worker: str) -> str:
    host, _, process = worker.rpartition(":")
    return f"{_HERE}:{process}" if host == os.uname().nodename else worker


def _timeout_s(images: int, device_images_per_sec: float | None) -> float:
    """Returns the time for a window: an epoch as fast as can be, and one that a device may hold back."""
    device_s = images / device_images_per_sec if device_images_per_sec else 0.0
    return images_timeout_s(2 * images, _LEAST_TIMEOUT_S) + device_s
