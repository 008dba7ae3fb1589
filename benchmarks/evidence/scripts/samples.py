"""What is measured of training scripts: their runs, and what `unstall profile` promised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# How a script runs: as it is; as an expert edited it; under `unstall profile`; with the diff that this wrote.
How = Literal["unmodified", "expert", "profiled", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRun:
    """One run of a script.

    Attributes:
      wall_s: from its start to its end.
      train_s: what it printed as the time of its whole training; None where it printed none.
      printed: what it printed to stdout.
    """

    wall_s: float
    train_s: float | None
    printed: str

    @property
    def took_s(self) -> float:
        """The time of the training; of the whole run where the script does not tell it."""
        return self.wall_s if self.train_s is None else self.train_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A run as it is and a run with an edit, one right after the other.

    Attributes:
      edit: whose edit it is.
    """

    edit: Literal["expert", "tool"]
    unmodified: ScriptRun
    edited: ScriptRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What was advised, and how many times as fast the script's epochs were promised to be, with a 95 % interval."""

    remedies: str
    ratio: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What `unstall profile` said of the `fit` or loop whose remedies were tried, or else of the first.

    Attributes:
      loading_ratio: the part of an epoch that is loading.
      sentence: the verdict.
      promise: of what was advised; None where nothing was.
      untried: why remedies were not tried.
      not_written: why the advice could not be written as a diff; None where it was, or where there was no advice.
    """

    loading_ratio: float
    sentence: str
    promise: Promise | None
    untried: tuple[str, ...]
    not_written: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSamples:
    """What was measured of one script.

    Attributes:
      advice: None where nothing was said.
      broken: how the script failed with the tool's edit; None where it did not.
    """

    name: str
    pairs: tuple[Pair, ...] = ()
    profiled: ScriptRun | None = None
    advice: Advice | None = None
    broken: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What was measured of all scripts."""

    scripts: tuple[ScriptSamples, ...] = ()
