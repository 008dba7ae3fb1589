"""What a search measures: plain data, raw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from unstall.benchmarks.tune.exactness import Exactness
from unstall.pipeline import PipelineConfig
from unstall.pipeline.cost_model import Consumer, Prediction, StageCost
from unstall.profiles.samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A pipeline that is compared with others.

    Attributes:
      name: "naive", "heuristic", "AUTOTUNE", or what the pipeline does, in a few words.
      config: with the model's image size.
      exactness: of its images, compared with fully decoded, bilinearly resized and augmented by TensorFlow; None where
        they were not compared, as for Keras layers, which make random draws of their own.
    """

    name: str
    config: PipelineConfig
    prediction: Prediction
    exactness: Exactness | None = None

    @property
    def is_exact(self) -> bool:
        """Whether its pixels are those of the reference, but for rounding; false for draws of another library."""
        if self.exactness is None:
            return not self.config.augment_with.startswith("keras_")
        return self.exactness.is_exact


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPipeline:
    """A subject and its windows: `train` and `loader` of rounds before the choice, `again` of rounds after it."""

    subject: Subject
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStage:
    """A stage, as its name and the settings that it depends on, such as ("load", "files", "scaled"), and its cost."""

    stage: tuple[str, ...]
    cost: StageCost


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSamples:
    """The chosen pipeline with elements in the order in which they are ready, and with a fixed order; in own rounds."""

    any_order: MeasuredPipeline
    in_order: MeasuredPipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSamples:
    """What a search has measured so far.

    Attributes:
      stages: all stages of all pipelines that were predicted.
      consumer: the cost of the model that takes the batches; None until it is measured.
      predicted: for how many pipelines a rate was predicted.
      rejected: reasons why pipelines were not measured, and how many pipelines each reason holds for.
      subjects: the pipelines that were measured; naive, heuristic and AUTOTUNE first.
      chosen_first: the name of the subject that was measured again, because the first rounds chose it, beside AUTOTUNE
        and, if it is not exact, the best exact subject; None where they chose AUTOTUNE, and until they have chosen.
      algorithms: AUTOTUNE with each of TensorFlow's algorithms, in rounds before all others; the fastest of them is the
        subject AUTOTUNE. Empty for a quick search, whose AUTOTUNE has the default.
      on_copy: AUTOTUNE on the prepared copy or the cache of the chosen pipeline, in the rounds that measured the choice
        again; None where the choice has none, and for a quick search.
      order: None where the chosen pipeline has no parallel calls, or could not be measured in any order.
      prepare_s_per_image: seconds that a prepared copy or a cache on disk takes before the first epoch; 0 without one.
      seconds: how long the search took.
    """

    stages: tuple[MeasuredStage, ...] = ()
    consumer: Consumer | None = None
    predicted: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    subjects: tuple[MeasuredPipeline, ...] = ()
    chosen_first: str | None = None
    algorithms: tuple[MeasuredPipeline, ...] = ()
    on_copy: MeasuredPipeline | None = None
    order: OrderSamples | None = None
    prepare_s_per_image: float = 0.0
    seconds: float = 0.0
