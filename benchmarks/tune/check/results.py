"""The results of a check of the tuner: for each target its choice, compared with the best pipeline of the space."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unstall.benchmarks.tune.check.samples import CheckSamples, MeasuredConfig, MeasuredCosts, MeasuredTarget
from unstall.benchmarks.tune.plan import CheckAsked, Target
from unstall.benchmarks.tune.results import Result, rates_of, results_of, shared_rounds
from unstall.pipeline.cost_model import predict
from unstall.profiles.report import Document
from unstall.profiles.samples import Sample
from unstall.profiles.statistics import Interval, geometric_mean, ratio_interval

# Source: the issues that asked for the tuner, and for better predictions.
GOAL_RATIO, NEAR_RATIO = 0.97, 1.1

CheckDocument = Document[CheckAsked, CheckSamples]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The measured rate of a pipeline, in images/sec, and its prediction.

    Attributes:
      whole: of whole epochs.
      steady: inside an epoch, which is what is predicted.
      predicted: from what was measured of the costs before each round and after it.
      off: the predicted rate over the steady one, round by round, and the 95 % interval.
    """

    whole: float
    steady: float
    predicted: float
    off: tuple[float, Interval | None]

    @property
    def off_ratio(self) -> float:
        """How many times the steady rate was predicted."""
        return self.off[0]

    @property
    def near(self) -> bool:
        """Whether the two are within 10 % of one another."""
        return 1 / NEAR_RATIO <= self.off_ratio <= NEAR_RATIO

    @property
    def may_be_near(self) -> bool:
        """Whether the rounds do not show that it is not: the interval reaches within 10 %."""
        low, high = self.off[1] or (self.off_ratio, self.off_ratio)
        return low <= NEAR_RATIO and high >= 1 / NEAR_RATIO


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of one target.

    Attributes:
      chosen: the name of the pipeline that the tuner chose.
      best: the name of the fastest pipeline of the space.
      rates: of every pipeline of the space, by its name.
      against: the rate of the choice over that of the best, measured side by side, and the 95 % interval; 1 where the
        two are the same. None where the check was stopped before that was measured.
    """

    target: Target
    chosen: str
    best: str
    rates: Mapping[str, Rate]
    against: tuple[float, Interval | None] | None

    @property
    def exit_code(self) -> int:
        """0 where the choice reaches the goal, 1 where it is shown not to, 4 where neither is shown."""
        if self.against is None:
            return 4
        ratio, interval = self.against
        return 0 if ratio >= GOAL_RATIO else 1 if interval is not None and interval[1] < GOAL_RATIO else 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of the targets whose pipelines were measured."""

    targets: tuple[Checked, ...]

    @property
    def exit_code(self) -> int:
        """1 where a target misses its goal, 4 where one may; else 0."""
        codes = {checked.exit_code for checked in self.targets}
        return next((code for code in (1, 4) if code in codes), 0)

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rates of all pipelines of all targets."""
        return tuple(rate for checked in self.targets for rate in checked.rates.values())


def derive(document: CheckDocument) -> Results:
    """Derives the result of each target."""
    assert document.dataset is not None
    images = document.dataset["images"]
    targets = document.samples.targets
    results = []
    for number, measured in enumerate(targets, 1):
        # A check that was stopped has not finished its last target.
        finished = document.complete or number < len(targets)
        chosen = chosen_of(measured, images)
        if chosen is not None and epoch_rates(measured.everything, images):
            cores = document.provenance["usable_cores"]
            results.append(_checked(measured, chosen, images, cores, finished=finished))
    return Results(targets=tuple(results))


def _checked(measured: MeasuredTarget, chosen: Result, images: int, cores: float, *, finished: bool) -> Checked:
    best = best_of(measured, images)
    costs = measured.costs
    if not costs:  # a file of an earlier version: the search has measured costs, too
        assert measured.search.consumer is not None
        costs = (MeasuredCosts(stages=measured.search.stages, consumer=measured.search.consumer),)
    # Stopped checks, and earlier versions, measured no costs after the last round: those before it count twice.
    rounds = max(len(_trained(config)) for config in measured.everything)
    costs += costs[-1:] * (rounds + 1 - len(costs))
    return Checked(
        target=measured.target,
        chosen=chosen.name,
        best=best.name,
        rates={
            config.name: _rate(config, costs, images, cores)
            for config in measured.everything
            if config.name in epoch_rates(measured.everything, images)
        },
        against=_against(measured, chosen, best, images) if finished else None,
    )


def _rate(config: MeasuredConfig, costs: Sequence[MeasuredCosts], images: int, cores: float) -> Rate:
    by_costs = [
        predict(
            config.config,
            {stage.stage: stage.cost for stage in measured.stages},
            measured.consumer,
            cores=cores,
            images=images,
            source_bytes=0,
        ).images_per_sec
        for measured in costs
    ]
    predicted = [geometric_mean(both) for both in itertools.pairwise(by_costs)]
    steady = [1 / sample.s_per_image for sample in _trained(config)]
    rounds = min(len(predicted), len(steady))
    return Rate(
        whole=geometric_mean(rates_of(config.samples, "train", images)),
        steady=geometric_mean(steady),
        predicted=geometric_mean(predicted),
        off=ratio_interval(predicted[:rounds], steady[:rounds]),
    )


def _trained(config: MeasuredConfig) -> list[Sample]:
    """Returns the windows of training of a pipeline, one a round."""
    return [sample for sample in config.samples if sample.window == "train"]


def chosen_of(measured: MeasuredTarget, images: int) -> Result | None:
    """Returns the tuner's choice for a target; None where nothing was measured that it could choose."""
    return results_of(measured.search, images, ended=measured.searched).chosen


def best_of(measured: MeasuredTarget, images: int) -> MeasuredConfig:
    """Returns the fastest pipeline of the space."""
    rates = epoch_rates(measured.everything, images)
    best = max(rates, key=lambda name: geometric_mean(rates[name]))
    return next(config for config in measured.everything if config.name == best)


def epoch_rates(configs: tuple[MeasuredConfig, ...], images: int) -> dict[str, tuple[float, ...]]:
    """Returns the images/sec of whole epochs of each pipeline, by round; pipelines without a round are left out."""
    rates = {config.name: rates_of(config.samples, "train", images) for config in configs}
    return {name: by_round for name, by_round in rates.items() if by_round}


def _against(
    measured: MeasuredTarget, chosen: Result, best: MeasuredConfig, images: int
) -> tuple[float, Interval | None] | None:
    if chosen.config == best.config:
        return 1.0, None
    rates = epoch_rates(measured.duel, images)
    if chosen.name not in rates or best.name not in rates:
        return None
    return ratio_interval(*shared_rounds(rates[chosen.name], rates[best.name]))
