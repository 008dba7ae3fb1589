"""Derives from runs, by pure functions, the result of each rung, and the difference between the pipelines over seeds.

Two runs of the same rung and seed, one with each pipeline, are a pair. The difference of a seed is the mean over the
rungs of accuracy with the tuned pipeline less accuracy with the generator. Each seed gives other initial weights,
another order of photos and other random augmentation, and so another difference. The 95 % interval is Student's t
interval of the seeds' differences, and needs at least three seeds. All runs are tested with the same photos, so the
interval does not show how far the difference would change with other test photos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unstall.benchmarks.accuracy.parser import RUNGS
from unstall.benchmarks.accuracy.plan import PIPELINES, Asked, Run
from unstall.benchmarks.accuracy.samples import ScriptCount, Trained
from unstall.profiles.statistics import median, share_interval, t_interval

# How much accuracy a faster pipeline may cost, as a share of the test photos: two points.
MARGIN = 0.02
# Verdicts, and the exit code of each.
VERDICTS = {"costs no more than 2 points": 0, "costs": 1, "not shown either way": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Accuracy with the tuned pipeline less accuracy with the generator.

    Attributes:
      by_seed: for each seed the mean over the rungs, as a share of the test photos; below 0 if the networks of the
        tuned pipeline are less accurate.
      low, high: the 95 % interval of the mean over seeds; None for fewer seeds than an interval needs.
      photos: the number of photos with which all runs are tested.
    """

    by_seed: tuple[float, ...]
    low: float | None
    high: float | None
    photos: int

    @property
    def mean(self) -> float:
        return float(np.mean(self.by_seed))

    def to_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, **asdict(self)}


def difference_of(plan: Asked, trained: Mapping[Run, Trained]) -> Difference | None:
    """Returns the difference over seeds.

    A pipeline may cost more accuracy on one rung than on another. So the means of all seeds are over the same rungs:
    those that have a pair with any seed. A seed without a pair on one of these rungs, because a run failed or was
    stopped, is left out.

    Returns:
      None where no seed is left.
    """
    pairs = {
        (rung, seed): difference
        for rung in plan.rungs
        for seed in range(plan.seeds)
        if (difference := pair_difference(trained, rung, seed)) is not None
    }
    rungs = dict.fromkeys(rung for rung, _ in pairs)
    by_seed = tuple(
        float(np.mean([pairs[rung, seed] for rung in rungs]))
        for seed in range(plan.seeds)
        if pairs and all((rung, seed) in pairs for rung in rungs)
    )
    if not by_seed:
        return None
    low, high = t_interval(by_seed) or (None, None)
    photos = len(next(iter(trained.values())).right)
    return Difference(by_seed=by_seed, low=low, high=high, photos=photos)


def pair_difference(trained: Mapping[Run, Trained], rung: str, seed: int) -> float | None:
    """Returns the accuracy of the tuned run less that of the generator's; None where either was not trained."""
    generator, tuned = (trained.get(Run(rung=rung, pipeline=pipeline, seed=seed)) for pipeline in PIPELINES)
    return None if generator is None or tuned is None else accuracy_of(tuned) - accuracy_of(generator)


def accuracy_of(trained: Trained) -> float:
    """Returns the share of the test photos that a run gets right in the end."""
    return trained.right.count("1") / len(trained.right)


def judge(difference: Difference | None) -> str:
    """Returns what a difference shows, one of `VERDICTS`.

    If the whole interval is at or above minus the margin, the tuned pipeline costs no more than the margin, even if the
    whole interval is below 0. Otherwise, the tuned pipeline "costs" if the whole interval is below 0.
    """
    if difference is None or difference.low is None or difference.high is None:
        return "not shown either way"
    if difference.low >= -MARGIN:
        return "costs no more than 2 points"
    return "costs" if difference.high < 0 else "not shown either way"


def against_published(low: float, high: float, published: float) -> str:
    """Returns whether an accuracy's 95 % interval holds a published figure, or lies above or below the figure."""
    if low <= published <= high:
        return "as published"
    return "above" if low > published else "below"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A rung fed by one pipeline.

    Attributes:
      runs: the number of runs, one for each seed.
      accuracy: the mean over the runs, of the network after its last pass.
      low, high: the 95 % interval for this number of test photos; more runs do not narrow the interval, because all
        runs are tested with the same photos.
      images_per_sec: median over passes and runs, without each run's first pass; None where there is no other pass.
      against: how the interval lies to the published figure; None where fewer images were trained or tested than
        published.
    """

    runs: int
    accuracy: float
    low: float
    high: float
    images_per_sec: float | None
    against: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RungResult:
    """A rung: its cells, None where nothing was trained, and the mean difference of its pairs, tuned - generator."""

    rung: str
    published: float
    cells: dict[str, Cell | None]
    difference: float | None


def images_per_sec(trained: Trained) -> float | None:
    """Returns the median rate of training over a run's passes, without the first."""
    rates = [tested.images_per_sec for tested in trained.passes[1:] if tested.images_per_sec is not None]
    return median(rates) if rates else None


def rung_results(
    plan: Asked, trained: Mapping[Run, Trained], *, train_photos: int, test_photos: int
) -> tuple[RungResult, ...]:
    """Returns the result of each rung of the plan."""

    def result(rung: str) -> RungResult:
        comparable = plan.as_published(rung, train_photos=train_photos, test_photos=test_photos)
        published = RUNGS[rung].published
        pairs = [pair_difference(trained, rung, seed) for seed in range(plan.seeds)]
        differences = [difference for difference in pairs if difference is not None]
        return RungResult(
            rung=rung,
            published=published,
            cells={
                pipeline: _cell(
                    [ended for run, ended in trained.items() if (run.rung, run.pipeline) == (rung, pipeline)],
                    published if comparable else None,
                )
                for pipeline in PIPELINES
            },
            difference=float(np.mean(differences)) if differences else None,
        )

    return tuple(map(result, plan.rungs))


def _cell(runs: Sequence[Trained], published: float | None) -> Cell | None:
    if not runs:
        return None
    photos = len(runs[0].right)
    accuracy = float(np.mean([accuracy_of(run) for run in runs]))
    low, high = share_interval(round(accuracy * photos), photos)
    rates = [rate for run in runs if (rate := images_per_sec(run)) is not None]
    return Cell(
        runs=len(runs),
        accuracy=accuracy,
        low=low,
        high=high,
        images_per_sec=median(rates) if rates else None,
        against=None if published is None else against_published(low, high, published),
    )


def scripts(trained: Mapping[Run, Trained]) -> tuple[tuple[Run, ScriptCount], ...]:
    """Returns the runs on whose networks the published prediction script was tried, and the script's errors."""
    return tuple((run, ended.script) for run, ended in trained.items() if ended.script is not None)
