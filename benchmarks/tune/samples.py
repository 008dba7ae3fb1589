"""What a search measures: plain data, raw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.tune.exactness import Exactness
from pipeline import PipelineConfig
from pipeline.cost_model import Consumer, Prediction, StageCost
from profiles.samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A pipeline that is compared with others.

    Attributes:
      name: "naive", "heuristic", "AUTOTUNE", or what the pipeline does, in a few words.
      config: with the model's image size.
      exactness: of its images against full decode, bilinear, tf ops; None where the images were not compared, as of a
        pipeline whose layers draw for themselves.
    """

    name: str
    config: PipelineConfig
    prediction: Prediction
    exactness: Exactness | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A subject and its windows: `train` and `loader` of the rounds that chose, `again` of rounds that did not."""

    subject: Subject
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStage:
    """A stage by its name and what it depends on, such as ("load", "files", "scaled"), and what it costs."""

    stage: tuple[str, ...]
    cost: StageCost


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSamples:
    """The chosen pipeline in rounds of its own: with elements in whatever order they are done, and in a fixed order."""

    any_order: Measured
    in_order: Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSamples:
    """What a search has measured so far.

    Attributes:
      stages: all stages of all pipelines that were predicted.
      consumer: what takes the batches; None before it was measured.
      predicted: how many pipelines were.
      rejected: reasons why a predicted pipeline was not measured, and how many pipelines each.
      subjects: the pipelines that were measured, the three that people have first.
      chosen_first: the subject that was measured again beside AUTOTUNE, because the first rounds chose it; None where
        they chose AUTOTUNE, and before that.
      order: None where the chosen pipeline does one thing at a time, or could not be measured so.
      prepare_s_per_image: that a prepared copy or a cache on disk takes before the first epoch; 0 without any.
      seconds: of the search.
    """

    stages: tuple[MeasuredStage, ...] = ()
    consumer: Consumer | None = None
    predicted: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    subjects: tuple[Measured, ...] = ()
    chosen_first: str | None = None
    order: OrderSamples | None = None
    prepare_s_per_image: float = 0.0
    seconds: float = 0.0
