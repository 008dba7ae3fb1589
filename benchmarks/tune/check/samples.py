"""The raw samples of a check of the tuner."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.benchmarks.tune.plan import Target
from unstall.benchmarks.tune.samples import MeasuredStage, SearchSamples
from unstall.pipeline import PipelineConfig
from unstall.pipeline.cost_model import Consumer
from unstall.profiles.samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredConfig:
    """A pipeline and its windows."""

    name: str
    config: PipelineConfig
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCosts:
    """What predictions rest on."""

    stages: tuple[MeasuredStage, ...]
    consumer: Consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTarget:
    """What was measured for one target.

    Attributes:
      search: what the tuner measured.
      searched: whether the tuner has finished its search.
      everything: all pipelines of the small space, measured side by side.
      costs: of the stages of these pipelines, measured before each of their rounds and after the last.
      duel: the tuner's choice and the best of the space, measured side by side; empty where they are the same.
    """

    target: Target
    search: SearchSamples
    searched: bool
    everything: tuple[MeasuredConfig, ...] = ()
    costs: tuple[MeasuredCosts, ...] = ()
    duel: tuple[MeasuredConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSamples:
    """What was measured, target by target."""

    targets: tuple[MeasuredTarget, ...]
