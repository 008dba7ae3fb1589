"""What a watched `fit` leaves behind: from its epochs and the model's ceilings to a subject and its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from profiles.devices import Device
from profiles.results.attribution import whole_ones
from profiles.results.subject import Subject
from profiles.samples import Sample
from profiles.script.epochs import KEPT_EPOCHS, EpochRecord
from profiles.statistics import LEAST_ROUNDS, median

# What Keras itself does between two steps takes some 0.1 to 0.3 ms; beyond this, and beyond that part of the steps,
# callbacks are at work.
_KERAS_BETWEEN_NS, _CALLBACKS_RATIO = 500_000, 0.05
# Others that take no more of the cores than this leave an epoch as it is: every machine does a little beside.
_QUIET_RATIO = 0.05
# Steady steps of the model alone, of all rounds, below which its rate is unknown: three rounds of one step each once
# gave a steady model 45 % of interference. Source: issue 16 of this project.
LEAST_STEADY_STEPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """What the model can do without its loader.

    Attributes:
      samples: `resident` and `replay`, some rounds of each; empty where `reason` says why.
    """

    samples: tuple[Sample, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRecord:
    """One call of `fit` in somebody's script, or a loop of theirs over batches.

    Attributes:
      name: "fit 1 (train.py:42)".
      model: its name.
      data_kind: what it was fed, in plain words.
      epochs: the last ones, at most `KEPT_EPOCHS`.
      device: what trained.
      training: loss, optimizer, `jit_compile`, workers asked for.
      ceilings: of the model alone.
      why_unknown: why its wait could not be known, or None.
      canary_ns: the canary loop, right before.
      whole: whether `fit` came to its end by itself.
      calls: of the same line on the same model, one after another.
      loop: whether it is a loop of the script's own: the time of its steps is known from their edges alone.
    """

    name: str
    model: str
    data_kind: str
    epochs: tuple[EpochRecord, ...]
    device: Device
    ceilings: Ceilings
    canary_ns: int
    training: dict[str, Any] = field(default_factory=dict)
    why_unknown: str | None = None
    whole: bool = True
    calls: int = 1
    loop: bool = False

    @property
    def images_per_sec(self) -> float | None:
        rates = [rate for record in self.epochs if (rate := record.images_per_sec) is not None]
        return median(rates) if rates else None

    @property
    def batch_size(self) -> int | None:
        return max((one.batch_size for one in self.epochs if one.batch_size), default=None)


def again(before: FitRecord, more: FitRecord) -> FitRecord:
    """Adds another call of the same line on the same model; its epochs go on where the last ones ended."""
    first = before.epochs[-1].epoch + 1
    epochs = [*before.epochs, *(replace(one, epoch=first + number) for number, one in enumerate(more.epochs))]
    # Their rounds stay behind all epochs: they are not the same rounds.
    later = first - more.epochs[0].epoch if more.ceilings.samples else len(more.epochs)
    samples = tuple(
        replace(sample, round=sample.round + later) for sample in more.ceilings.samples or before.ceilings.samples
    )
    return replace(
        more,
        name=before.name,
        epochs=tuple(epochs[-KEPT_EPOCHS:]),
        ceilings=replace(more.ceilings, samples=samples, reason=None if samples else more.ceilings.reason),
        whole=before.whole and more.whole,
        calls=before.calls + more.calls,
    )


class UnknownError(Exception):
    """A `fit` of which loading and compute cannot be told apart; the message says why, and what is known."""


def samples_of(fit: FitRecord) -> tuple[Subject, list[Sample]]:
    """Returns what a result is derived from: the epochs of a `fit`, and its model's ceilings where there are any.

    Raises:
      UnknownError: if nothing can be derived.
    """
    measured = [one for one in fit.epochs if one.steady_images and one.steady_wait_ns is not None and one.steady_ns]
    if not measured:
        raise UnknownError(_unknown(fit, fit.why_unknown or "it made too few steps"))
    asynchronous = any(one.asynchronous for one in measured)
    if asynchronous and not fit.ceilings.samples:
        raise UnknownError(_unknown(fit, f"the device runs on behind the host, and {_no_ceilings(fit)}"))
    callbacks_ratio = 0.0 if asynchronous else _callbacks_ratio(measured)
    samples = [_sample(one, fit, callbacks_ratio) for one in measured]
    if len(samples) > 1 and measured[0].epoch == 0:
        samples[0] = replace(samples[0], window="warmup")
    notes = [f"fed by {fit.data_kind}"]
    trained = whole_ones([sample for sample in samples if sample.window == "train"])
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
    if not any(one.whole for one in samples if one.window == "train"):
        notes.append("no epoch behind the first came to its end: what epochs take at their edges is unknown")
    if not fit.loop and all(one.claimed_ns is None for one in measured):
        why = "the device runs on behind the host" if asynchronous else "the batch hooks of callbacks were not timed"
        notes.append(f"not checked whether steps and edges add up to the time of an epoch: {why}")
    subject = Subject(
        variant=fit.name,
        model=fit.model,
        device=fit.device,
        batch_size=fit.batch_size or 0,
        training=fit.training,
        images=_images_per_epoch(samples),
    )
    if fit.ceilings.samples:
        samples += _quiet_rounds(fit.ceilings.samples)
    else:
        notes.append(f"{_no_ceilings(fit)}: what the loader takes from the model's cores counts as compute")
    return replace(subject, notes=tuple(notes)), samples


def is_quiet(samples: Sequence[Sample]) -> bool:
    """Whether nothing else ran beside all of these, as far as that is known."""
    return all((one.others_ratio or 0.0) <= _QUIET_RATIO for one in samples)


def _quiet_rounds(ceilings: Sequence[Sample]) -> Sequence[Sample]:
    """Returns the samples of the rounds beside which nothing else ran; all where these are too few for a rate."""
    loud = {sample.round for sample in ceilings if not is_quiet([sample])}
    quiet = [sample for sample in ceilings if sample.round not in loud]
    alone = [sample for sample in quiet if sample.window == "resident"]
    steps = sum(len(sample.step_ns) for sample in alone)
    return quiet if len(alone) >= LEAST_ROUNDS and steps >= LEAST_STEADY_STEPS else ceilings


def _images_per_epoch(samples: Sequence[Sample]) -> int:
    """Returns the mean of the whole epochs behind the first: what all edges take is then what they take by image.

    Where no epoch was whole, the images that were seen of the last.
    """
    images = [one.epoch_images for one in samples if one.window == "train" and one.whole]
    return round(sum(images) / len(images)) if images else samples[-1].epoch_images


def _no_ceilings(fit: FitRecord) -> str:
    return f"the model's own rate is unknown ({fit.ceilings.reason})"


def _unknown(fit: FitRecord, why: str) -> str:
    rate = "unknown" if fit.images_per_sec is None else f"{fit.images_per_sec:,.0f}"
    return f"images/sec {rate}, loading unknown: {why}"


def _callbacks_ratio(records: Sequence[EpochRecord]) -> float:
    """Returns the part of steady time that callbacks took between steps, beyond what Keras takes; 0 where it is little.

    Where their hooks were not timed, all that went by between the steps is taken for theirs.
    """

    def ratio_of(record: EpochRecord) -> float:
        callbacks_ns = record.between_ns if record.callbacks_ns is None else record.callbacks_ns
        return (callbacks_ns - _KERAS_BETWEEN_NS * record.steady_steps) / record.steady_ns

    ratio = median([ratio_of(one) for one in records])
    return ratio if ratio > _CALLBACKS_RATIO else 0.0


def _sample(record: EpochRecord, fit: FitRecord, callbacks_ratio: float) -> Sample:
    assert record.steady_images is not None and record.steady_wait_ns is not None
    kept = 1 - callbacks_ratio
    left_out_ns = int(record.wall_ns - record.traced_ns) * callbacks_ratio
    images = record.images or record.steady_images
    return Sample(
        window="train",
        round=record.epoch,
        images=record.steady_images,
        wall_ns=max(1, int(record.steady_ns * kept)),
        wait_ns=record.steady_wait_ns,
        step_ns=record.step_ns,
        epochs=1,
        epoch_images=images,
        epoch_ns=max(1, int(record.epoch_ns - left_out_ns)),
        first_batch_ns=(record.before_ns if record.first_batch_ns is None else record.first_batch_ns,),
        # With what callbacks took, on both sides: their hooks were timed.
        outer_ns=max(1, record.outer_ns),
        claimed_ns=record.claimed_ns,
        cpu_ns=record.cpu_ns,
        canary_ns=fit.canary_ns,
        others_ratio=record.others_ratio,
        whole=record.whole,
    )
