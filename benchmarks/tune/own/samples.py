"""What is measured of a user's own pipeline: plain data, raw."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.remedies import Change
from profiles.samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFacts:
    """What a user's pipeline is, and what of it can be measured.

    Attributes:
      stages: as they pass an element.
      changes: the pipeline as written first.
      refused: changes that must not be made, and why.
      epoch_images: images of an epoch of the user's; None where it has no end, or none was found.
      scaled: whether a measured epoch is that epoch on a smaller scale, its edges too.
      notes: what a reader of the rates must know.
    """

    stages: tuple[str, ...]
    changes: tuple[Change, ...]
    refused: tuple[str, ...]
    epoch_images: float | None
    scaled: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredChange:
    """One change and its windows.

    Attributes:
      samples: of the rounds that chose.
      again: of rounds that had no say in the choice; none where the change was not in question.
    """

    name: str
    samples: tuple[Sample, ...]
    again: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceSamples:
    """What was measured so far.

    Attributes:
      facts: None before the pipeline was built.
      changes: those that did not fail, the pipeline as written first.
      chosen_first: the change that was measured again beside the pipeline as written; None where there was none.
      seconds: of it all.
    """

    facts: PipelineFacts | None = None
    changes: tuple[MeasuredChange, ...] = ()
    chosen_first: str | None = None
    seconds: float = 0.0
