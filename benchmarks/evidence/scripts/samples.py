"""What is measured of training scripts: their runs, and what the watched run was told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# How a script runs: plainly; edited by hand; with data that cost nothing; under `unstall profile`.
How = Literal["as written", "by hand", "held", "watched"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRun:
    """One run of a script.

    Attributes:
      exit_code: of the process; negative if a signal ended it.
      wall_s: from its start to its end.
      epochs_s: that it printed.
      printed: what it printed to stdout.
    """

    how: How
    round: int
    exit_code: int
    wall_s: float
    epochs_s: tuple[float, ...]
    printed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What the trial measured of a remedy, or of several together.

    Attributes:
      name: such as "cache + prefetch"; `remedies` are its parts.
      ratio: times as fast as the data as written, with its 95 % interval.
    """

    name: str
    remedies: tuple[str, ...]
    ratio: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What the watched run said of the `fit` or loop whose remedies were tried, or else of the first.

    Attributes:
      loading_ratio: the part of an epoch that is loading.
      is_least: whether that is the least of it, since what the loader takes from the steps' cores is unknown.
      most_taken_ratio: the most that this can be; None where it is unknown.
      sentence: the verdict.
      tried: all contenders but the data as written.
      chosen: the name of the advised one; None where nothing was advised.
      untried: why remedies were not tried.
    """

    loading_ratio: float
    is_least: bool = False
    most_taken_ratio: float | None = None
    sentence: str
    tried: tuple[Tried, ...]
    chosen: str | None
    untried: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSamples:
    """What was measured of one script; `advice` is None where nothing was said."""

    name: str
    runs: tuple[ScriptRun, ...] = ()
    advice: Advice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What was measured of all scripts."""

    scripts: tuple[ScriptSamples, ...] = ()
