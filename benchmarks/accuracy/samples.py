"""What the parent asks of a child that trains, and what the child answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.accuracy.plan import Run
from pipeline import PipelineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a child is to train. `script` says whether the published script is tried on the network in the end."""

    model: str
    config: PipelineConfig
    passes: int
    script: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TestedPass:
    """One pass over the photos, and how many test photos were right behind it."""

    number: int
    images: int
    loss: float
    images_per_sec: float | None
    correct: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCount:
    """What the published prediction script makes of the test photos, and the corrected one.

    Attributes:
      images: classified, each once.
      published_wrong: by the script as published: the photo not rescaled, and `== 1`.
      corrected_wrong: rescaled to [0, 1], and `> 0.5`.
    """

    images: int
    published_wrong: int
    corrected_wrong: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The result of a run.

    Attributes:
      passes: in order.
      right: of each test photo, in the source's order, "1" if the network gets it right in the end, else "0".
      script: None where it was not tried.
      notes: on the loader.
      backend: Keras' and its device.
    """

    passes: tuple[TestedPass, ...]
    right: str
    script: ScriptCount | None
    notes: tuple[str, ...]
    backend: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How far a run is: images seen, passes behind it, and one of the other two when it has ended."""

    images: int = 0
    passes: int = 0
    trained: Trained | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run that came to its end, and its result."""

    run: Run
    trained: Trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """The results of a ladder.

    Attributes:
      device: that trained.
      tested_with: where the test photos come from, in plain words.
      runs: those that came to their end, in order.
    """

    device: str
    tested_with: str
    runs: tuple[EndedRun, ...]
