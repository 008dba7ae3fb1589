"""Compares devices: a child for each device, cases one after another, their windows in rounds over the devices."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.devices.experiments import Case
from unstall.benchmarks.devices.feeds import Sources
from unstall.benchmarks.devices.holder import Holder
from unstall.benchmarks.devices.plan import Asked, Plan
from unstall.benchmarks.devices.report import DevicesDocument, Measurements
from unstall.benchmarks.devices.results import window_name
from unstall.benchmarks.devices.samples import MeasuredCase
from unstall.benchmarks.lab.child import HANG_LEAST_S, HANG_RATIO, ChildDied, JobRefused
from unstall.benchmarks.lab.command import devices_here, read_source
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.run import LabRun
from unstall.pipeline import ImageSource
from unstall.profiles import Device
from unstall.profiles.machine import Recorder
from unstall.profiles.measure import LOADER_ROUNDS
from unstall.profiles.report import LeftOut

# Requests that call `fit` have more time than other windows before they hang, because `fit` traces again.
_FIT_LEAST_S = 300.0


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Opens the photos if a case takes photos, and gets ready to measure."""
    takes_photos = any(case.config is not None for case in plan.asked.cases)
    photos = read_source(plan.data, progress, errors, skip_list=plan.skip_list) if takes_photos else None
    devices = [*devices_here(), *([] if plan.emulated is None else [plan.emulated])]
    return Run(plan, photos, devices, progress, errors)


class Run(LabRun[Asked, Measurements]):
    """Measures what a plan asks for.

    Args:
      photos: None where no case takes photos.
      devices: the devices to compare; a GPU that is missing is left out.
    """

    command = "devices"

    def __init__(
        self,
        plan: Plan,
        photos: ImageSource | None,
        devices: Sequence[Device],
        progress: Progress,
        errors: Console,
    ) -> None:
        super().__init__(plan.asked, progress, None if photos is None else photos.to_dict())
        self._errors = errors
        self._recorder = Recorder()
        self._order = random.Random()
        sources = Sources(photos=photos, arrays=plan.arrays, download=plan.download)
        self._holders = [
            Holder(device, sources, plan.out / f"{device.name.replace(':', '-')}.log") for device in devices
        ]

    def samples(self) -> Measurements:
        measured = (
            holder.measured[case] for case in self._asked.cases for holder in self._holders if case in holder.measured
        )
        return Measurements(cases=tuple(measured))

    def left_out(self) -> list[LeftOut]:
        return [*self._left_out, *(left_out for holder in self._holders for left_out in holder.left_out)]

    def document(self, *, complete: bool) -> DevicesDocument:
        """Returns the document of what was measured so far, with the backend of each device."""
        document = super().document(complete=complete)
        backends = {holder.device.name: dict(holder.backend) for holder in self._holders}
        provenance = {**document.provenance, "backends": backends}
        return replace(document, provenance=provenance, telemetry=self._recorder.trace)

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures every case on every device.

        Args:
          after_round: called after each round of a case, to write the results so far.
        Raises:
          UserError: if the CPU cannot be measured at all.
        """
        windows = self._asked.rounds + 2
        total = len(self._asked.cases) * len(self._holders) * windows
        task = self._progress.add_task("starting", total=total)
        self._progress.refresh()

        def done(name: str) -> None:
            self._progress.update(task, advance=1, description=name[:40], refresh=True)

        with self._recorder as recorder:
            recorder.phase("start")
            for holder in list(self._holders):
                self._start(holder)
            self._progress.update(task, total=len(self._asked.cases) * len(self._holders) * windows)
            for case in self._asked.cases:
                recorder.phase(case.name)
                for holder in self._holders:
                    recorder.mark(window_name("open", case, holder.device))
                    holder.open(case)
                    done(case.name)
                for number in range(self._asked.rounds):
                    for holder in self._order.sample(self._holders, len(self._holders)):
                        self._round(holder, case, number)
                        done(case.name)
                    after_round()
                for holder in self._holders:
                    self._train(holder, case)
                    done(case.name)
        self._progress.remove_task(task)

    def _start(self, holder: Holder) -> None:
        try:
            holder.start()
        except (JobRefused, ChildDied) as error:
            if holder.device.kind != "gpu":
                raise UserError(f"{holder.device.name}: {error}", exit_code=3) from error
            self._left_out.append(LeftOut(who=holder.device.name, reason=str(error)))
            self._errors.print(f"left out gpu: {error}", style="yellow")
            holder.kill()
            self._holders.remove(holder)

    def _round(self, holder: Holder, case: Case, number: int) -> None:
        """Measures a window of each kind, the peak of the device before them, and predictions after them."""
        if not holder.has(case):
            return
        measured = holder.measured[case]
        computes = holder.device.kind != "emulated"
        if computes:
            self._mark("peak", case, holder)
            peak = holder.ask(case, "peak", timeout_s=_FIT_LEAST_S)
            if peak is not None:
                measured.peaks.append(peak)
        windows = _windows(measured, number, replay=computes)
        for window in self._order.sample(windows, len(windows)):
            if holder.has(case):
                self._mark(window, case, holder)
                sample = holder.ask(case, "window", window, number, timeout_s=_window_timeout_s(measured))
                if sample is not None:
                    measured.samples.append(sample)
        if computes and measured.facts.warmup is not None and holder.has(case):
            self._mark("predict", case, holder)
            rate = holder.ask(case, "predict", timeout_s=_FIT_LEAST_S)
            if rate is not None:
                measured.predicted_per_sec.append(rate)

    def _train(self, holder: Holder, case: Case) -> None:
        """Trains as many epochs as the plan asks for; an emulated device trains none."""
        if not holder.has(case) or holder.device.kind == "emulated":
            return
        self._mark("epochs", case, holder)
        longest_s = self._asked.longest_epoch_s
        timeout_s = _FIT_LEAST_S + self._asked.epochs * longest_s * HANG_RATIO
        epochs = holder.ask(case, "train", self._asked.epochs, longest_s, timeout_s=timeout_s)
        holder.measured[case].epochs.extend(epochs or ())

    def _mark(self, window: str, case: Case, holder: Holder) -> None:
        self._recorder.mark(window_name(window, case, holder.device))

    def close(self) -> None:
        for holder in self._holders:
            holder.close()

    def kill(self) -> None:
        for holder in self._holders:
            holder.kill()


def _windows(measured: MeasuredCase, number: int, *, replay: bool) -> tuple[str, ...]:
    if measured.facts.warmup is None:
        return ()
    return ("resident", *("replay",) * replay, *("loader",) * (number < LOADER_ROUNDS), "train")


def _window_timeout_s(measured: MeasuredCase) -> float:
    assert measured.facts.warmup is not None
    return max(HANG_LEAST_S, HANG_RATIO * measured.facts.warmup.outer_ns / 1e9)
