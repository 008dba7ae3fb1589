"""Derives figures from the samples of a case on a device, and how long an epoch and the whole training take."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from unstall.benchmarks.devices.experiments import Case
from unstall.benchmarks.devices.peak import Peak
from unstall.benchmarks.devices.samples import CaseFacts, Epoch, MeasuredCase
from unstall.models import MODELS, Training
from unstall.pipeline.config import config_to_dict
from unstall.profiles import Device
from unstall.profiles.machine import MachineUse, Trace, during, settled, spans
from unstall.profiles.results import Facts, Result, Subject, summarise
from unstall.profiles.statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """A time; `extrapolated` says from which measurement, and is None for a time that was measured whole."""

    seconds: float
    extrapolated: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How long training took to reach an accuracy.

    Attributes:
      seconds, epoch: when the accuracy was reached; None where it was not reached in `epochs`.
      best: the highest accuracy.
      cut: how much of the data an epoch had, where epochs were cut short.
    """

    target: float
    seconds: float | None
    epoch: int | None
    epochs: int
    best: float | None
    cut: str | None

    @property
    def text(self) -> str:
        cut = "" if self.cut is None else f", {self.cut}"
        if self.seconds is not None:
            return f"{self.target:g} reached in epoch {self.epoch}, {self.seconds:.1f} s{cut}"
        best = "no accuracy" if self.best is None else f"{self.best:.2f}"
        return f"{self.target:g} not reached in {self.epochs} epoch{'s' * (self.epochs != 1)} ({best}){cut}"


def epoch_duration(epochs: Sequence[Epoch], examples: int, result: Result | None) -> Duration:
    """Returns how long an epoch of all examples takes, without tracing: the median of the epochs after the first.

    The first epoch is faster than the others: while the network is traced, the loader makes batches in advance. Where
    there is no other epoch, the windows of training say how long an epoch takes.
    """
    timed = epochs[1:] or [epoch for epoch in epochs if not epoch.traced_s]
    if not timed and result is not None:
        return Duration(seconds=examples / result.epoch_images_per_sec, extrapolated="from windows of training")
    seconds = median([epoch.seconds / epoch.examples for epoch in timed or epochs]) * examples
    if not timed:
        return Duration(seconds=seconds, extrapolated="from the epoch in which the network was traced")
    if timed[0].examples >= examples:
        return Duration(seconds=seconds)
    return Duration(seconds=seconds, extrapolated=f"from {timed[0].examples:,} of {examples:,} examples")


def training_duration(epochs: Sequence[Epoch], epoch: Duration, examples: int, training: Training) -> Duration:
    """Returns how long the published training takes, tracing included.

    Args:
      epochs: the measured epochs.
      epoch: the time of a pass over all examples.
      examples: the number of all examples.
      training: the published training: a number of passes, or of steps whatever the number of examples.
    """
    traced_s = sum(measured.traced_s for measured in epochs)
    published = training.epochs
    if training.images_seen is not None:
        trained = sum(measured.examples for measured in epochs)
        seconds = traced_s + training.images_seen / examples * epoch.seconds
        if epoch.extrapolated and not epochs[1:]:  # the time of an epoch is not from these images then
            return Duration(seconds=seconds, extrapolated=epoch.extrapolated)
        drawn_out = trained < training.images_seen
        return Duration(
            seconds=seconds,
            extrapolated=f"from {trained:,} of {training.images_seen:,} images" if drawn_out else None,
        )
    if len(epochs) >= published and epochs[0].examples >= examples:
        return Duration(seconds=sum(measured.seconds + measured.traced_s for measured in epochs[:published]))
    from_ = [f"from {len(epochs)} of {published} epochs"] if epochs and len(epochs) < published else []
    if epoch.extrapolated is not None:
        from_.append(epoch.extrapolated)
    return Duration(seconds=traced_s + published * epoch.seconds, extrapolated=", ".join(from_))


def reached(epochs: Sequence[Epoch], target: float, examples: int) -> Reached:
    """Returns when training first reached an accuracy, tracing included; `examples` is the number in a whole epoch."""
    trained = epochs[0].examples
    cut = f"each epoch cut to {trained:,} of {examples:,} examples" if trained < examples else None
    accuracies = [epoch.accuracy for epoch in epochs if epoch.accuracy is not None]
    after_s = itertools.accumulate(epoch.seconds + epoch.traced_s for epoch in epochs)
    first = next(
        (
            (number, seconds)
            for number, (epoch, seconds) in enumerate(zip(epochs, after_s, strict=True), start=1)
            if epoch.accuracy is not None and epoch.accuracy >= target
        ),
        (None, None),
    )
    return Reached(
        target=target,
        seconds=first[1],
        epoch=first[0],
        epochs=len(epochs),
        best=max(accuracies, default=None),
        cut=cut,
    )


def window_name(window: str, case: Case, device: Device) -> str:
    """Returns how a window is marked in the recording of the machine."""
    return f"{window}: {case.name}, {device.name}"


# The windows for which the results say how busy the machine was.
USED = ("resident", "train", "epochs")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What was measured of a case on a device.

    Attributes:
      backend: the Keras backend that computed.
      timing: rates and the split into loading and compute; None where single steps cannot be timed.
      images_per_sec: the rate of training over whole epochs.
      predicted_per_sec: how many examples are predicted a second; None on a device that predicts nothing.
      epochs: the epochs that `fit` trained.
      epoch: how long an epoch of all examples takes.
      published: the published training.
      training: how long the published training takes, tracing included.
      reached: when the target accuracy was reached; None without a target, and on a device that learns nothing.
      flops_per_image: the operations of a training step for an image, forward and backward; None where the framework
        does not count them.
      flops_unknown: why the framework does not count operations.
      achieved_flops_per_sec: operations a second in training; `compute_flops_per_sec`: of the model alone. None on a
        device that computes nothing.
      peak_flops_per_sec, peak_bytes_per_sec: the highest rates of the device in the run, in the same precision.
      moved_bytes_per_sec: how many bytes the model alone moves a second at least.
      peaks: the device's peaks, measured in the same rounds.
      use: how busy the machine was, by window.
      price_per_hour: None where no price was given.
    """

    case: Case
    device: Device
    backend: str
    facts: CaseFacts
    timing: Result | None
    images_per_sec: float
    predicted_per_sec: float | None
    epochs: tuple[Epoch, ...]
    epoch: Duration
    published: Training
    training: Duration
    reached: Reached | None
    flops_per_image: int | None
    flops_unknown: str | None
    achieved_flops_per_sec: float | None
    compute_flops_per_sec: float | None
    peak_flops_per_sec: float | None
    peak_bytes_per_sec: float | None
    moved_bytes_per_sec: float | None
    peaks: tuple[Peak, ...]
    use: Mapping[str, MachineUse]
    price_per_hour: float | None

    @property
    def compute_images_per_sec(self) -> float | None:
        return None if self.timing is None else self.timing.compute_images_per_sec

    @property
    def loading_ratio(self) -> float | None:
        return None if self.timing is None else self.timing.attribution.loading_ratio

    @property
    def peak_ratio(self) -> float | None:
        """The share of the device's measured peak that training reaches."""
        return _ratio(self.achieved_flops_per_sec, self.peak_flops_per_sec)

    @property
    def compute_peak_ratio(self) -> float | None:
        """The share of the device's measured peak that the model alone reaches."""
        return _ratio(self.compute_flops_per_sec, self.peak_flops_per_sec)

    @property
    def bandwidth_ratio(self) -> float | None:
        """The share of the device's measured memory bandwidth that the model alone needs at least."""
        return _ratio(self.moved_bytes_per_sec, self.peak_bytes_per_sec)

    @property
    def cost_per_epoch(self) -> float | None:
        return None if self.price_per_hour is None else self.price_per_hour * self.epoch.seconds / 3600

    def to_dict(self) -> dict[str, Any]:
        """Returns the result for a results file: the keys of a result of `benchmarks.pipeline`, and some of its own."""
        facts = self.facts
        return {
            **({} if self.timing is None else self.timing.to_dict()),
            "case": self.case.name,
            "model": self.case.model,
            "feed": self.case.feed,
            "device": {"kind": self.device.kind, "name": self.device.name},
            "keras_backend": self.backend,
            "batch_size": facts.batch_size,
            "precision": self.case.precision,
            "steps_per_execution": self.case.steps_per_execution,
            "data": {
                "name": facts.data,
                "examples": facts.examples,
                "generated": facts.generated,
                "fingerprint": facts.fingerprint,
            },
            "images_per_sec": self.images_per_sec,
            "predicted_images_per_sec": self.predicted_per_sec,
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "accuracy_of": "test data" if facts.validated else "training data",
            "epoch": asdict(self.epoch),
            "training_epochs": self.published.epochs,
            "training_images_seen": self.published.images_seen,
            "training_time": asdict(self.training),
            "reached": None if self.reached is None else asdict(self.reached),
            "forward_flops_per_image": facts.work.forward_flops,
            "training_flops_per_image": self.flops_per_image,
            "flops_unknown": self.flops_unknown,
            "achieved_flops_per_sec": self.achieved_flops_per_sec,
            "compute_flops_per_sec": self.compute_flops_per_sec,
            "peak_flops_per_sec": self.peak_flops_per_sec,
            "peak_ratio": self.peak_ratio,
            "compute_peak_ratio": self.compute_peak_ratio,
            "step_bytes": facts.step_bytes,
            "moved_bytes_per_sec": self.moved_bytes_per_sec,
            "peak_bytes_per_sec": self.peak_bytes_per_sec,
            "bandwidth_ratio": self.bandwidth_ratio,
            "peaks": [asdict(peak) for peak in self.peaks],
            "machine": {window: asdict(use) for window, use in self.use.items()},
            "price_per_hour": self.price_per_hour,
            "cost_per_epoch": self.cost_per_epoch,
        }


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or whole is None else part / whole


def case_result_of(
    measured: MeasuredCase,
    peaks: Sequence[Peak],
    *,
    trace: Trace,
    names: Mapping[str, str],
    prices: Mapping[str, float],
    target: float | None,
    typical_canary_ns: float,
) -> CaseResult | None:
    """Derives the result of a case on a device; None where too little was measured.

    Args:
      peaks: all peaks of the device in the case's precision.
      trace: the machine during the run; `names` says how each window of `USED` is marked there.
      prices: per hour, by the device's name or kind.
      target: the accuracy whose time is wanted; None for none.
      typical_canary_ns: the median of the canary over the whole run.
    """
    case, device, facts = measured.case, measured.device, measured.facts
    windows = {sample.window for sample in measured.samples}
    timing = None
    if facts.warmup is not None and {"train", "resident"} <= windows:
        samples = [facts.warmup, *measured.samples]
        timing = summarise(_subject(case, device, facts), samples, typical_canary_ns=typical_canary_ns)
    elif not measured.epochs:
        return None
    epoch = epoch_duration(measured.epochs, facts.examples, timing)
    training = MODELS[case.model].training
    rate = facts.examples / epoch.seconds if timing is None else timing.epoch_images_per_sec
    flops = facts.work.training_flops
    computes = device.kind != "emulated"
    alone = timing.compute_images_per_sec if timing is not None and computes else None
    return CaseResult(
        case=case,
        device=device,
        backend=measured.backend,
        facts=facts,
        timing=timing,
        images_per_sec=rate,
        predicted_per_sec=median(measured.predicted_per_sec) if measured.predicted_per_sec else None,
        epochs=tuple(measured.epochs),
        epoch=epoch,
        published=training,
        training=training_duration(measured.epochs, epoch, facts.examples, training),
        reached=None if target is None or not measured.epochs else reached(measured.epochs, target, facts.examples),
        flops_per_image=flops,
        flops_unknown=facts.work.reason,
        achieved_flops_per_sec=rate * flops if flops is not None and computes else None,
        compute_flops_per_sec=None if alone is None or flops is None else alone * flops,
        peak_flops_per_sec=max((peak.flops_per_sec for peak in peaks), default=None),
        peak_bytes_per_sec=max((peak.bytes_per_sec for peak in peaks), default=None),
        moved_bytes_per_sec=None if alone is None else alone / facts.batch_size * facts.step_bytes,
        peaks=tuple(measured.peaks),
        use={window: _use(trace, names[window], device) for window in USED},
        price_per_hour=prices.get(device.name, prices.get(device.kind)),
    )


def _use(trace: Trace, name: str, device: Device) -> MachineUse:
    """Returns how busy the machine was in the windows of a name.

    Leaves out the first values of a GPU in each window: they are averages that reach back before the window.
    """
    parts = spans(trace, name)
    use = during(trace, parts)
    if device.kind != "gpu":
        return use
    gpu = during(trace, settled(parts))
    return replace(use, gpu_ratio=gpu.gpu_ratio, gpu_watts=gpu.gpu_watts)


def _subject(case: Case, device: Device, facts: CaseFacts) -> Subject:
    return Subject(
        variant=case.feed,
        model=case.model,
        device=device,
        batch_size=facts.batch_size,
        config={} if case.config is None else config_to_dict(case.config),
        facts=Facts(
            loss=facts.loss,
            optimizer=facts.optimizer,
            jit_compile=facts.jit_compile,
            parameters=facts.parameters,
        ),
        images=facts.examples,
        buffered_batches=facts.buffered_batches,
        notes=facts.notes,
    )
