"""What the parent asks of a child that trains, and what the child answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unstall.benchmarks.accuracy.plan import Run
from unstall.pipeline import PipelineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a child trains. `script` says whether the published prediction script is tried on the trained network."""

    model: str
    config: PipelineConfig
    passes: int
    script: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TestedPass:
    """One pass over the photos, and how many test photos were right after the pass."""

    number: int
    images: int
    loss: float
    images_per_sec: float | None
    correct: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCount:
    """How many test photos the published prediction script and the corrected script get wrong.

    Attributes:
      images: the number of photos, each classified once by each script.
      published_wrong: errors of the published script, which does not rescale photos, and tests `== 1`.
      corrected_wrong: errors of the corrected script, which rescales photos to [0, 1], and tests `> 0.5`.
    """

    images: int
    published_wrong: int
    corrected_wrong: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The result of a run.

    Attributes:
      passes: all passes, in order.
      right: for each test photo, in the source's order, "1" if the trained network gets the photo right, else "0".
      script: the errors of the published prediction script; None where the script was not tried.
      notes: what a reader of the results must know about the loader.
      backend: the description of Keras' backend and its devices.
    """

    passes: tuple[TestedPass, ...]
    right: str
    script: ScriptCount | None
    notes: tuple[str, ...]
    backend: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How far a run is: images seen, passes ended; `trained` or `failure` is set when the run has ended."""

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
      device: the name of the device that trained.
      tested_with: where the test photos come from, in plain words.
      runs: the runs that came to their end, in order.
    """

    device: str
    tested_with: str
    runs: tuple[EndedRun, ...]
