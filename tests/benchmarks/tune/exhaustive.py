"""Holds the tuner against exhaustive search: over a small space, is its choice as fast as the best there is?"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unstall.benchmarks.lab.rounds import Group, run_round
from unstall.benchmarks.lab.session import Job
from unstall.benchmarks.tune.parser import parser
from unstall.benchmarks.tune.plan import read_search
from unstall.benchmarks.tune.results import Result, name_of, rates_of, results_of, shared_rounds
from unstall.benchmarks.tune.rounds import SESSION
from unstall.benchmarks.tune.search import COST_IMAGES, Tuner
from unstall.pipeline import ImageSource, PipelineConfig
from unstall.pipeline.cost_model import Consumer, StageCost, StageKey, predict, stages_of
from unstall.profiles import Device
from unstall.profiles.devices import parse_device
from unstall.profiles.provenance import usable_cores
from unstall.profiles.samples import Sample
from unstall.profiles.statistics import Interval, geometric_mean, range_text, ratio_interval

# The part of the best rate that a choice must reach, and how far a prediction may be off. Source: the issues that asked
# for the tuner, and for better predictions.
GOAL_RATIO, NEAR_RATIO = 0.97, 1.1
_ROUNDS, _DUEL_ROUNDS = 5, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A model and a device for which the tuner chooses."""

    model: str
    device: Device

    @property
    def name(self) -> str:
        return f"{self.model} on {self.device.name}"


TARGETS = tuple(
    Target(model=model, device=parse_device(device))
    for model, device in (
        ("cats-dogs-64", "cpu"),
        ("cats-dogs-128", "cpu"),
        ("cats-dogs-64", "emulated:1000"),
        ("cats-dogs-64", "emulated:20000"),
    )
)


def small_space(base: PipelineConfig) -> Iterator[PipelineConfig]:
    """Yields ten pipelines: five kinds of work, each without parallelism, and with parallel calls and prefetching."""
    base = replace(base, loader="tf_data", autotune=False, rewrites=True)
    composed = replace(base, resample="composed", augment_with="opencv", augment_at="batch")
    for work in (
        base,
        replace(base, decode="scaled"),
        replace(composed, decode="scaled"),
        replace(base, cache="memory", augment_at="batch"),
        replace(composed, storage="raw"),
    ):
        for workers, prefetch in ((1, 0), (max(2, round(usable_cores())), 2)):
            yield replace(work, workers=workers, prefetch=prefetch, one_iterator=prefetch > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What predictions rest on."""

    stages: Mapping[StageKey, StageCost]
    consumer: Consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The rate of the tuner's choice over that of the best of the space, and the 95 % interval."""

    chosen: str
    best: str
    ratio: float
    interval: Interval | None

    @property
    def reaches(self) -> bool | None:
        """Whether the choice reaches the goal; None where the rounds show neither."""
        if self.ratio >= GOAL_RATIO:
            return True
        return False if self.interval is not None and self.interval[1] < GOAL_RATIO else None

    def __str__(self) -> str:
        return f"{self.chosen}: {self.ratio:.3f} ({range_text(self.interval, 3)}) of {self.best}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Off:
    """A predicted rate over the one inside an epoch, round by round, and the 95 % interval."""

    ratio: float
    interval: Interval | None

    @property
    def is_near(self) -> bool:
        """Whether the two are within 10 % of one another."""
        return 1 / NEAR_RATIO <= self.ratio <= NEAR_RATIO

    @property
    def may_be_near(self) -> bool:
        """Whether the rounds do not show that it is not: the interval reaches within 10 %."""
        low, high = self.interval or (self.ratio, self.ratio)
        return low <= NEAR_RATIO and high >= 1 / NEAR_RATIO

    def __str__(self) -> str:
        return f"{self.ratio:.2f} ({range_text(self.interval, 2)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured for one target.

    Attributes:
      images: of an epoch of the user's training.
      chosen: the tuner's choice.
      space: the windows of all pipelines of the small space, measured side by side, by their configs.
      costs: of the stages of these pipelines, before each of their rounds and after the last.
      duel: the windows of the choice and of the best of the space, measured side by side; empty where both are one.
    """

    images: int
    chosen: Result
    space: Mapping[PipelineConfig, Sequence[Sample]]
    costs: Sequence[Costs]
    duel: Mapping[PipelineConfig, Sequence[Sample]]

    @property
    def best(self) -> PipelineConfig:
        """The fastest pipeline of the space."""
        return max(self.space, key=lambda config: geometric_mean(self._rates(self.space[config])))

    @property
    def choice(self) -> Choice:
        best, (ratio, interval) = self.best, (1.0, None)
        if self.duel:
            both = (self._rates(self.duel[config]) for config in (self.chosen.config, best))
            ratio, interval = ratio_interval(*shared_rounds(*both))
        return Choice(chosen=self.chosen.name, best=name_of(best), ratio=ratio, interval=interval)

    @property
    def predictions(self) -> dict[str, Off]:
        """How far the prediction of each pipeline of the space is off, by its name.

        What is predicted from the costs before a round and after it is held against that round: a machine that gets
        slower is so in both.
        """
        return {name_of(config): self._off(config, samples) for config, samples in self.space.items()}

    def _rates(self, samples: Sequence[Sample]) -> tuple[float, ...]:
        return rates_of(samples, "train", self.images)

    def _off(self, config: PipelineConfig, samples: Sequence[Sample]) -> Off:
        by_costs = [
            predict(
                config, costs.stages, costs.consumer, cores=usable_cores(), images=self.images, source_bytes=0
            ).images_per_sec
            for costs in self.costs
        ]
        predicted = [geometric_mean(both) for both in itertools.pairwise(by_costs)]
        steady = [1 / sample.s_per_image for sample in samples if sample.window == "train"]
        ratio, interval = ratio_interval(predicted, steady)
        return Off(ratio=ratio, interval=interval)


def measure(target: Target, source: ImageSource, folder: Path) -> Measured:
    """Runs the tuner and the exhaustive search for a target, and measures the choice beside the best.

    Args:
      folder: where the logs of processes that fail go.
    Raises:
      UserError, ChildDied, JobRefused: if the target cannot be measured.
    """
    words = ["--model", target.model, "--device", target.device.name, "--thorough"]
    tuner = Tuner(read_search(parser().parse_args(words), folder), source, lambda text: None, small_space)
    try:
        tuner.search(lambda: None)
        tuner.close()
    finally:
        tuner.kill()
    chosen = results_of(tuner.samples, source.images, ended=True).chosen
    assert chosen is not None
    base = PipelineConfig(image_size=chosen.config.image_size)
    configs = tuple(small_space(base))
    keys = tuple(dict.fromkeys(key for config in configs for key, _ in stages_of(config)))
    costs: list[Costs] = []

    def measure_costs(group: Group) -> None:
        stages, consumer = group.ask("stage_costs", keys, base, target.model, COST_IMAGES)
        costs.append(Costs(stages=stages, consumer=consumer))

    space = _side_by_side(target, source, configs, folder, _ROUNDS, measure_costs)
    measured = Measured(images=source.images, chosen=chosen, space=space, costs=costs, duel={})
    if chosen.config == measured.best:
        return measured
    both = (chosen.config, measured.best)
    return replace(measured, duel=_side_by_side(target, source, both, folder, _DUEL_ROUNDS))


def _side_by_side(
    target: Target,
    source: ImageSource,
    configs: Sequence[PipelineConfig],
    folder: Path,
    rounds: int,
    around: Callable[[Group], object] = lambda group: None,
) -> dict[PipelineConfig, Sequence[Sample]]:
    """Measures pipelines in rounds. Returns the windows of each.

    Args:
      around: measures something else, before each round and after the last.
    """
    jobs = [Job(variant=name_of(config), config=config, model=target.model) for config in configs]
    group = Group(target.device, source, jobs, folder / "check.log", {}, SESSION)
    try:
        group.open()
        for job in group.jobs:
            group.prepare(job)
        order = random.Random()
        for number in range(rounds):
            around(group)
            run_round(group.turns(loader=False, model_alone=False), number, order)
        around(group)
        group.close()
    finally:
        group.kill()
    assert not group.left_out, [f"{left_out.label}: {left_out.reason}" for left_out in group.left_out]
    return {job.config: tuple(group.measured[job].samples) for job in group.jobs}
