"""How long epochs and trainings take, and what was drawn out to say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.devices_measured import Epoch
from models.network import Training
from profiles.results import Result
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
