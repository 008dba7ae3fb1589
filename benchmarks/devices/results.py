"""What a case came to on a device, derived from its samples: the figures of a row, and the times of whole trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.devices.experiments import Case
from benchmarks.devices.peak import Peak
from benchmarks.devices.samples import CaseFacts, Epoch, MeasuredCase
from models import MODELS, Training
from pipeline.config import config_to_dict
from profiles import Device
from profiles.machine import MachineUse, Trace, during, settled, spans
from profiles.results import Result, Subject, summarise
from profiles.statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """Seconds, and what they are drawn out from where they were not measured whole."""

    seconds: float
    extrapolated: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How long training took to an accuracy, in which epoch; both None where it was not reached, in `epochs`.

    Attributes:
      cut: how much of the data an epoch had, where it was cut short.
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
        best = "no accuracy told" if self.best is None else f"{self.best:.2f}"
        return f"{self.target:g} not reached in {self.epochs} epoch{'s' * (self.epochs != 1)} ({best}){cut}"


def epoch_duration(epochs: Sequence[Epoch], examples: int, result: Result | None) -> Duration:
    """Returns how long an epoch of all examples takes, without tracing: the median of those after the first.

    A first epoch alone says too little: while the network is traced, the loader makes batches that cost it nothing
    later. Then the windows of training say how long, where there are any.
    """
    timed = epochs[1:] or [one for one in epochs if not one.traced_s]
    if not timed and result is not None:
        return Duration(seconds=examples / result.epoch_images_per_sec, extrapolated="from windows of training")
    seconds = median([one.seconds / one.examples for one in timed or epochs]) * examples
    if not timed:
        return Duration(seconds=seconds, extrapolated="from the epoch in which the network was traced")
    if timed[0].examples >= examples:
        return Duration(seconds=seconds)
    return Duration(seconds=seconds, extrapolated=f"from {timed[0].examples:,} of {examples:,} examples")


def training_duration(epochs: Sequence[Epoch], epoch: Duration, examples: int, training: Training) -> Duration:
    """Returns how long the published training takes, tracing included.

    Args:
      epochs: as measured.
      epoch: one pass over all examples.
      examples: of such a pass.
      training: as published: so many passes, or so many steps whatever the number of examples.
    """
    traced_s = sum(one.traced_s for one in epochs)
    published = training.epochs
    if training.images_seen is not None:
        trained = sum(one.examples for one in epochs)
        seconds = traced_s + training.images_seen / examples * epoch.seconds
        if epoch.extrapolated and not epochs[1:]:  # then it is not these images that say how long an epoch takes
            return Duration(seconds=seconds, extrapolated=epoch.extrapolated)
        drawn_out = trained < training.images_seen
        return Duration(
            seconds=seconds,
            extrapolated=f"from {trained:,} of {training.images_seen:,} images" if drawn_out else None,
        )
    if len(epochs) >= published and epochs[0].examples >= examples:
        return Duration(seconds=sum(one.seconds + one.traced_s for one in epochs[:published]))
    from_ = [f"from {len(epochs)} of {published} epochs"] if epochs and len(epochs) < published else []
    if epoch.extrapolated is not None:
        from_.append(epoch.extrapolated)
    return Duration(seconds=traced_s + published * epoch.seconds, extrapolated=", ".join(from_))


def reached(epochs: Sequence[Epoch], target: float, examples: int) -> Reached:
    """Returns when training first came to an accuracy, tracing included; `examples` are those of a whole epoch."""
    trained = epochs[0].examples
    cut = f"each epoch cut to {trained:,} of {examples:,} examples" if trained < examples else None
    known = [one.accuracy for one in epochs if one.accuracy is not None]
    seconds = 0.0
    for number, one in enumerate(epochs, start=1):
        seconds += one.seconds + one.traced_s
        if one.accuracy is not None and one.accuracy >= target:
            return Reached(target=target, seconds=seconds, epoch=number, epochs=len(epochs), best=max(known), cut=cut)
    return Reached(target=target, seconds=None, epoch=None, epochs=len(epochs), best=max(known, default=None), cut=cut)


def window_name(window: str, case: Case, device: Device) -> str:
    """Returns how a window is marked in the recording of the machine."""
    return f"{window}: {case.name}, {device.name}"


# The windows during which it is told how busy the machine was.
USED = ("resident", "train", "epochs")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case on a device.

    Attributes:
      backend: Keras' own, that computed.
      result: rates and the split into loading and compute; None where steps cannot be seen one by one.
      images_per_sec: trained, over whole epochs.
      predicted_per_sec: None where nothing predicts.
      epochs: real ones.
      epoch: how long one takes, of all examples.
      published: the training, as it was published.
      training: how long all of it takes, tracing included.
      reached: the accuracy that was asked for; None if none was, or nothing learns.
      flops_per_image: a training step's, forward and backward; None where the framework does not count them.
      flops_unknown: why not.
      achieved_flops_per_sec: those of the images trained; `compute_flops_per_sec` of the model alone. None on a device
        that computes nothing.
      peak_flops_per_sec, peak_bytes_per_sec: the most that the device did in the run, in the same precision.
      moved_bytes_per_sec: that the model alone moves at least.
      peaks: those that were measured beside it.
      use: of the machine, by window.
      price_per_hour: as given; None if none was.
    """

    case: Case
    device: Device
    backend: str
    facts: CaseFacts
    result: Result | None
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
        return None if self.result is None else self.result.compute_images_per_sec

    @property
    def loading_ratio(self) -> float | None:
        return None if self.result is None else self.result.attribution.loading_ratio

    @property
    def peak_ratio(self) -> float | None:
        """Share of the device's measured peak that training as it runs makes use of."""
        return _ratio(self.achieved_flops_per_sec, self.peak_flops_per_sec)

    @property
    def compute_peak_ratio(self) -> float | None:
        """The same of the model alone."""
        return _ratio(self.compute_flops_per_sec, self.peak_flops_per_sec)

    @property
    def bandwidth_ratio(self) -> float | None:
        """Share of the device's measured memory bandwidth that the model alone asks for at least."""
        return _ratio(self.moved_bytes_per_sec, self.peak_bytes_per_sec)

    @property
    def cost_per_epoch(self) -> float | None:
        return None if self.price_per_hour is None else self.price_per_hour * self.epoch.seconds / 3600

    def to_dict(self) -> dict[str, Any]:
        """Returns a results file's row: what the main job's has, and what only this one has."""
        facts = self.facts
        return {
            **({} if self.result is None else self.result.to_dict()),
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
            "epochs": [one.to_dict() for one in self.epochs],
            "accuracy_of": "test data" if facts.validated else "training data",
            "epoch": self.epoch.to_dict(),
            "training_epochs": self.published.epochs,
            "training_images_seen": self.published.images_seen,
            "training_time": self.training.to_dict(),
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
            "peaks": [one.to_dict() for one in self.peaks],
            "machine": {window: asdict(use) for window, use in self.use.items()},
            "price_per_hour": self.price_per_hour,
            "cost_per_epoch": self.cost_per_epoch,
        }


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or whole is None else part / whole


def row_of(
    measured: MeasuredCase,
    peaks: Sequence[Peak],
    *,
    trace: Trace,
    names: Mapping[str, str],
    prices: Mapping[str, float],
    target: float | None,
    typical_canary_ns: float,
) -> CaseResult | None:
    """Derives a row; None where too little was measured for one.

    Args:
      peaks: of the device, all that were measured in the case's precision.
      trace: of the machine; `names` says how each of `USED` is marked in it.
      prices: per hour, by the device's name or kind.
      target: accuracy whose time is told.
      typical_canary_ns: the median of the canary over the whole run.
    """
    case, device, facts = measured.case, measured.device, measured.facts
    windows = {sample.window for sample in measured.samples}
    result = None
    if facts.warmup is not None and {"train", "resident"} <= windows:
        samples = [facts.warmup, *measured.samples]
        result = summarise(_subject(case, device, facts), samples, typical_canary_ns=typical_canary_ns)
    elif not measured.epochs:
        return None
    epoch = epoch_duration(measured.epochs, facts.examples, result)
    training = MODELS[case.model].training
    rate = facts.examples / epoch.seconds if result is None else result.epoch_images_per_sec
    flops = facts.work.training_flops
    computes = device.kind != "emulated"
    alone = result.compute_images_per_sec if result is not None and computes else None
    return CaseResult(
        case=case,
        device=device,
        backend=measured.backend,
        facts=facts,
        result=result,
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
        peak_flops_per_sec=max((one.flops_per_sec for one in peaks), default=None),
        peak_bytes_per_sec=max((one.bytes_per_sec for one in peaks), default=None),
        moved_bytes_per_sec=None if alone is None else alone / facts.batch_size * facts.step_bytes,
        peaks=tuple(measured.peaks),
        use={window: _use(trace, names[window], device) for window in USED},
        price_per_hour=prices.get(device.name, prices.get(device.kind)),
    )


def _use(trace: Trace, name: str, device: Device) -> MachineUse:
    """Returns how busy the machine was in the windows marked so; of a GPU only what it says of them alone."""
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
        training={
            "loss": facts.loss,
            "optimizer": facts.optimizer,
            "jit_compile": facts.jit_compile,
            "parameters": facts.parameters,
        },
        images=facts.examples,
        buffered_batches=facts.buffered_batches,
        notes=facts.notes,
    )
