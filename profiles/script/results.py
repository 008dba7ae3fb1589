"""Derives a subject and its samples from a watched `fit` or loop: from its epochs and the ceilings of its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unstall.profiles.code_line import CodeLine
from unstall.profiles.devices import Device
from unstall.profiles.measure.epochs import KEPT_EPOCHS, EpochRecord, sample_of
from unstall.profiles.results.account import Account, later_call
from unstall.profiles.results.attribution import whole_samples
from unstall.profiles.results.facts import Facts
from unstall.profiles.results.subject import Subject
from unstall.profiles.samples import Sample
from unstall.profiles.stage_table import UsersLine
from unstall.profiles.statistics import LEAST_ROUNDS, median
from unstall.profiles.unit import SAMPLE, Unit

# Keras itself takes 0.1 to 0.3 ms between two steps. More time than the first figure between steps is counted as that
# of callbacks, if it is more than the second part of the steps' time.
_KERAS_BETWEEN_NS, _CALLBACKS_RATIO = 500_000, 0.05
# Other programs that take no more of the cores than this do not disturb an epoch: every machine does a little beside.
_QUIET_RATIO = 0.05
# With fewer steady steps of the model alone, over all rounds, its rate counts as unknown: three rounds of one step each
# once gave a steady model 45 % of interference. Source: issue 16 of this project.
LEAST_STEADY_STEPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Measurements of the model without its loader.

    Attributes:
      samples: `resident` and `replay`, some rounds of each; empty where `reason` says why there are none.
      step_ns: of a step in `fit`: (one a call, `STEPS_TOGETHER` a call); None where this was not measured.
    """

    samples: tuple[Sample, ...]
    reason: str | None = None
    step_ns: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRecord:
    """The calls of `fit`, `evaluate` or `predict` in one place of a user's script, or a loop over data there.

    Attributes:
      short: "fit 1".
      place: the line of the call, or where the loop begins.
      model: name of the model.
      epochs: the last epochs, at most `KEPT_EPOCHS`.
      device: the device that trained.
      ceilings: of the model alone.
      canary_ns: time of `clock.canary_ns`, right before.
      facts: of its data, which are always named, and of its training.
      why_unknown: why the waiting is unknown, or None.
      whole: whether `fit` ran to its end.
      calls: how many calls on the same line and model this record sums up.
      trains: whether this is no `evaluate` or `predict`.
      loop: whether this is a loop of the script. A step of a loop is the time between two batches.
      account: where the wall time of the calls of `fit` went; None for all others.
      unit: what the batches hold.
      lines: of the user's code that took the time of the loader, of data that are read once.
    """

    short: str
    place: CodeLine
    model: str
    epochs: tuple[EpochRecord, ...]
    device: Device
    ceilings: Ceilings
    canary_ns: int
    facts: Facts
    why_unknown: str | None = None
    whole: bool = True
    calls: int = 1
    trains: bool = True
    loop: bool = False
    account: Account | None = None
    unit: Unit = SAMPLE
    lines: tuple[UsersLine, ...] = ()

    @property
    def name(self) -> str:
        """The name in the report: "fit 1 (train.py:42)"."""
        return f"{self.short} ({self.place})"

    @property
    def images_per_sec(self) -> float | None:
        rates = [rate for record in self.epochs if (rate := record.images_per_sec) is not None]
        return median(rates) if rates else None

    @property
    def batch_size(self) -> int | None:
        return max((epoch.batch_size for epoch in self.epochs if epoch.batch_size), default=None)


def join_calls(before: FitRecord, more: FitRecord) -> FitRecord:
    """Adds another call on the same line and model to a record. Epochs are numbered on."""
    first = before.epochs[-1].epoch + 1
    epochs = [*before.epochs, *(replace(epoch, epoch=first + number) for number, epoch in enumerate(more.epochs))]
    # The rounds of the ceilings are numbered behind all epochs: they were not measured side by side with any.
    later = first - more.epochs[0].epoch if more.ceilings.samples else len(more.epochs)
    samples = tuple(
        replace(sample, round=sample.round + later) for sample in more.ceilings.samples or before.ceilings.samples
    )
    return replace(
        more,
        short=before.short,
        epochs=tuple(epochs[-KEPT_EPOCHS:]),
        ceilings=replace(more.ceilings, samples=samples, reason=None if samples else more.ceilings.reason),
        lines=more.lines or before.lines,
        whole=before.whole and more.whole,
        calls=before.calls + more.calls,
        account=before.account + later_call(more.account) if before.account and more.account else None,
    )


class UnknownError(Exception):
    """Loading and compute of a `fit` cannot be separated; the message says why, and what is known."""


def samples_of(fit: FitRecord) -> tuple[Subject, list[Sample]]:
    """Returns (subject, samples) to derive a result from: the epochs of a `fit`, and the ceilings of its model if any.

    Raises:
      UnknownError: if the epochs do not say how much of them was loading.
    """
    measured = [
        epoch for epoch in fit.epochs if epoch.steady_images and epoch.steady_wait_ns is not None and epoch.steady_ns
    ]
    if not measured:
        raise UnknownError(_unknown(fit, fit.why_unknown or "it made too few steps"))
    if any(epoch.asynchronous for epoch in measured) and not fit.ceilings.samples:
        raise UnknownError(_unknown(fit, f"the device runs on behind the host, and {_no_ceilings(fit)}"))
    callbacks_ratio = _callbacks_ratio(measured)
    samples = [_sample(epoch, fit, callbacks_ratio) for epoch in measured]
    if len(samples) > 1 and measured[0].epoch == 0:
        samples[0] = replace(samples[0], window="warmup")
    notes = [f"fed by {fit.facts.data}"]
    trained = whole_samples([sample for sample in samples if sample.window == "train"])
    quiet = [sample for sample in trained if is_quiet([sample])]
    if LEAST_ROUNDS <= len(quiet) < len(trained):
        loud = len(trained) - len(quiet)
        notes.append(f"other programs took the cores in {loud} of {len(trained)} epochs, which are left out")
        samples = [sample for sample in samples if sample.window != "train" or sample in quiet]
    if fit.calls > 1:
        notes.append(f"{fit.calls} calls of fit, one after another")
    if callbacks_ratio:
        notes.append(f"callbacks took {callbacks_ratio:.0%} of the time of the steps; it is left out")
    if not fit.whole:
        notes.append("fit was left before its end")
    if not any(sample.whole for sample in samples if sample.window == "train"):
        notes.append("no epoch behind the first came to its end: what epochs take at their edges is unknown")
    if not fit.loop and all(epoch.claimed_ns is None for epoch in measured):
        notes.append(
            "not checked whether steps and edges add up to the time of an epoch: the batch hooks of callbacks were not "
            "timed"
        )
    subject = Subject(
        variant=fit.name,
        model=fit.model,
        device=fit.device,
        batch_size=fit.batch_size or 0,
        facts=fit.facts,
        images=_images_per_epoch(samples),
        unit=fit.unit,
        place=fit.place.without_folders,
    )
    if fit.ceilings.samples:
        samples += _quiet_rounds(fit.ceilings.samples)
    else:
        notes.append(f"{_no_ceilings(fit)}: what the loader takes from the model's cores counts as compute")
    return replace(subject, notes=tuple(notes)), samples


def is_quiet(samples: Sequence[Sample]) -> bool:
    """Whether no other program ran beside these samples, as far as that is known."""
    return all((sample.others_ratio or 0.0) <= _QUIET_RATIO for sample in samples)


def _quiet_rounds(ceilings: Sequence[Sample]) -> Sequence[Sample]:
    """Returns the samples of rounds beside which no other program ran; all samples if those are too few for a rate."""
    loud = {sample.round for sample in ceilings if not is_quiet([sample])}
    quiet = [sample for sample in ceilings if sample.round not in loud]
    alone = [sample for sample in quiet if sample.window == "resident"]
    steps = sum(len(sample.step_ns) for sample in alone)
    return quiet if len(alone) >= LEAST_ROUNDS and steps >= LEAST_STEADY_STEPS else ceilings


def _images_per_epoch(samples: Sequence[Sample]) -> int:
    """Returns the mean images of the whole epochs behind the first; those of the last epoch if none was whole.

    With this mean, the edges per image of an epoch are the edges of all epochs over the images of all epochs.
    """
    images = [sample.epoch_images for sample in samples if sample.window == "train" and sample.whole]
    return round(sum(images) / len(images)) if images else samples[-1].epoch_images


def _no_ceilings(fit: FitRecord) -> str:
    return f"the model's own rate is unknown ({fit.ceilings.reason})"


def _unknown(fit: FitRecord, why: str) -> str:
    rate = "unknown" if fit.images_per_sec is None else f"{fit.images_per_sec:,.0f}"
    return f"{fit.unit.plural}/sec {rate}, loading unknown: {why}"


def _callbacks_ratio(records: Sequence[EpochRecord]) -> float:
    """Returns the part of the time of steady steps that callbacks took between them; 0 if it is below 5 %.

    Where the hooks of callbacks were not timed, all time between the steps counts, less what Keras itself takes.
    """

    def ratio_of(record: EpochRecord) -> float:
        callbacks_ns = record.between_ns if record.callbacks_ns is None else record.callbacks_ns
        return (callbacks_ns - _KERAS_BETWEEN_NS * record.steady_steps) / record.steady_ns

    ratio = median([ratio_of(record) for record in records])
    return ratio if ratio > _CALLBACKS_RATIO else 0.0


def _sample(record: EpochRecord, fit: FitRecord, callbacks_ratio: float) -> Sample:
    """Returns an epoch as a sample of `train`, without the time of callbacks."""
    sample = sample_of(
        [record],
        window="train",
        round_=record.epoch,
        epoch_ns=int(record.epoch_ns - int(record.wall_ns - record.traced_ns) * callbacks_ratio),
        # Both include the time of callbacks, whose hooks were timed.
        outer_ns=record.outer_ns,
        claimed_ns=record.claimed_ns,
        cpu_ns=record.cpu_ns,
        canary_ns=fit.canary_ns,
        others_ratio=record.others_ratio,
    )
    return replace(sample, wall_ns=max(1, int(record.steady_ns * (1 - callbacks_ratio))))
