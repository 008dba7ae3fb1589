"""One comparison of devices: a child for each, cases one after another, their windows in rounds over the devices."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rich.console import Console
from rich.progress import Progress

from benchmarks.devices.experiments import Case
from benchmarks.devices.feeds import Sources
from benchmarks.devices.holder import Holder, LeftOut
from benchmarks.devices.plan import Request
from benchmarks.devices.samples import Measured
from benchmarks.lab.child import ChildDied, JobRefused
from benchmarks.lab.options import UserError
from pipeline import ImageSource
from profiles import Device
from profiles.machine import Recorder
from profiles.measure import LOADER_ROUNDS

# A window that takes this many times as long as foreseen, and at least so long, hangs; whatever comes with `fit` is
# traced anew.
_HANG_RATIO, _HANG_LEAST_S, _FIT_LEAST_S = 30.0, 60.0, 300.0


def window_name(window: str, case: Case, device: Device) -> str:
    """Returns how a window is marked in the recording of the machine."""
    return f"{window}: {case.name}, {device.name}"


class Run:
    """Measures what a request asks for.

    Args:
      photos: None where no case takes any.
      devices: what to compare; a GPU that turns out not to be there is left out.
    """

    def __init__(
        self,
        request: Request,
        photos: ImageSource | None,
        devices: Sequence[Device],
        progress: Progress,
        errors: Console,
    ) -> None:
        self._request = request
        self._progress = progress
        self._errors = errors
        self.recorder = Recorder()
        self.missing: list[LeftOut] = []
        self._order = random.Random()
        sources = Sources(photos=photos, arrays=request.arrays, download=request.download)
        self.holders = [
            Holder(device, sources, request.out / f"{device.name.replace(':', '-')}.log") for device in devices
        ]

    @property
    def left_out(self) -> list[LeftOut]:
        """Who has no result, and why."""
        return [*self.missing, *(one for holder in self.holders for one in holder.left_out)]

    def measure(self) -> None:
        """Measures every case on every device.

        Raises:
          UserError: if the CPU cannot be measured at all.
        """
        windows = self._request.rounds + 2
        total = len(self._request.cases) * len(self.holders) * windows
        task = self._progress.add_task("starting", total=total)
        self._progress.refresh()

        def done(name: str) -> None:
            self._progress.update(task, advance=1, description=name[:40], refresh=True)

        with self.recorder as recorder:
            recorder.phase("start")
            for holder in list(self.holders):
                self._start(holder)
            self._progress.update(task, total=len(self._request.cases) * len(self.holders) * windows)
            for case in self._request.cases:
                recorder.phase(case.name)
                for holder in self.holders:
                    recorder.mark(window_name("open", case, holder.device))
                    holder.open(case)
                    done(case.name)
                for number in range(self._request.rounds):
                    for holder in self._order.sample(self.holders, len(self.holders)):
                        self._round(holder, case, number)
                        done(case.name)
                for holder in self.holders:
                    self._train(holder, case)
                    done(case.name)
        self._progress.remove_task(task)

    def _start(self, holder: Holder) -> None:
        try:
            holder.start()
        except (JobRefused, ChildDied) as error:
            if holder.device.kind != "gpu":
                raise UserError(f"{holder.device.name}: {error}", exit_code=3) from error
            self.missing.append(LeftOut(case=None, device=holder.device, reason=str(error)))
            self._errors.print(f"left out gpu: {error}", style="yellow", markup=False, highlight=False)
            holder.kill()
            self.holders.remove(holder)

    def _round(self, holder: Holder, case: Case, number: int) -> None:
        """Measures one window of each kind, and beside them what the device can do."""
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
        """Trains real epochs; an emulated device learns nothing."""
        if not holder.has(case) or holder.device.kind == "emulated":
            return
        self._mark("epochs", case, holder)
        longest_s = self._request.longest_epoch_s
        timeout_s = _FIT_LEAST_S + self._request.epochs * longest_s * _HANG_RATIO
        epochs = holder.ask(case, "train", self._request.epochs, longest_s, timeout_s=timeout_s)
        holder.measured[case].epochs += epochs or ()

    def _mark(self, window: str, case: Case, holder: Holder) -> None:
        self.recorder.mark(window_name(window, case, holder.device))

    def close(self) -> None:
        for holder in self.holders:
            holder.close()

    def kill(self) -> None:
        for holder in self.holders:
            holder.kill()


def _windows(measured: Measured, number: int, *, replay: bool) -> tuple[str, ...]:
    if measured.facts.warmup is None:
        return ()
    return ("resident", *("replay",) * replay, *("loader",) * (number < LOADER_ROUNDS), "train")


def _window_timeout_s(measured: Measured) -> float:
    assert measured.facts.warmup is not None
    return max(_HANG_LEAST_S, _HANG_RATIO * measured.facts.warmup.outer_ns / 1e9)
