"""The raw samples of a user's own pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.remedies import Change
from profiles.samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFacts:
    """What a user's pipeline consists of, and what of it can be measured.

    Attributes:
      stages: in the order in which an element passes them.
      changes: all that are measured; the first is the pipeline as written.
      refused: changes that must not be made, and why.
      epoch_images: images of an epoch of the user's pipeline; None where it never ends, or its end was not reached.
      scaled: whether a measured epoch is the user's epoch at a smaller scale, its edges included.
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
      samples: of the rounds before the choice.
      again: of rounds after the choice; empty where the change was not measured again.
    """

    name: str
    samples: tuple[Sample, ...]
    again: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceSamples:
    """What was measured so far.

    Attributes:
      facts: None until the pipeline is built.
      changes: those that did not fail, the pipeline as written first.
      chosen_first: the change that was measured again beside the pipeline as written; None where none was.
      seconds: how long the advice took.
    """

    facts: PipelineFacts | None = None
    changes: tuple[MeasuredChange, ...] = ()
    chosen_first: str | None = None
    seconds: float = 0.0
