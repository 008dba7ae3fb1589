"""What runs come to: a row for each rung, the pairs' difference, and the prediction experiment. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy_child import ScriptCount, Trained
from benchmarks.accuracy_plan import PIPELINES, RUNGS, Plan, Run
from benchmarks.accuracy_statistics import Difference, against_published, paired_difference
from profiles.statistics import median, share_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A rung fed by one pipeline.

    Attributes:
      runs: seeds that it was trained with.
      accuracy: mean over them, of the network as it is in the end.
      low, high: the 95 % interval that so many test photos allow; more seeds do not narrow it, the photos are the same.
      images_per_sec: median over passes and runs, without each run's first pass; None where there is one pass only.
      against: how it lies to the published figure; None where less was trained or tested than was published.
    """

    runs: int
    accuracy: float
    low: float
    high: float
    images_per_sec: float | None
    against: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A rung: its cells, None where nothing was trained, and the mean difference of its pairs, tuned - generator."""

    rung: str
    published: float
    cells: dict[str, Cell | None]
    difference: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def images_per_sec(trained: Trained) -> float | None:
    """Returns the median rate of training over a run's passes, without the first."""
    rates = [one.images_per_sec for one in trained.passes[1:] if one.images_per_sec is not None]
    return median(rates) if rates else None


def rows(plan: Plan, trained: Mapping[Run, Trained], *, train_photos: int, test_photos: int) -> tuple[Row, ...]:
    """Returns a row for each rung of the plan."""
    made = []
    for rung in plan.rungs:
        cells = {}
        for pipeline in PIPELINES:
            runs = [one for run, one in trained.items() if (run.rung, run.pipeline) == (rung, pipeline)]
            comparable = plan.as_published(rung, train_photos=train_photos, test_photos=test_photos)
            cells[pipeline] = _cell(runs, RUNGS[rung].published if comparable else None)
        pairs = [pair for seed in range(plan.seeds) if (pair := pair_of(trained, rung, seed)) is not None]
        made.append(
            Row(
                rung=rung,
                published=RUNGS[rung].published,
                cells=cells,
                difference=float(np.mean([tuned.mean() - generator.mean() for generator, tuned in pairs]))
                if pairs
                else None,
            )
        )
    return tuple(made)


def _cell(runs: list[Trained], published: float | None) -> Cell | None:
    if not runs:
        return None
    photos = len(runs[0].right)
    accuracy = float(np.mean([right_of(one).mean() for one in runs]))
    low, high = share_interval(round(accuracy * photos), photos)
    rates = [rate for one in runs if (rate := images_per_sec(one)) is not None]
    return Cell(
        runs=len(runs),
        accuracy=accuracy,
        low=low,
        high=high,
        images_per_sec=median(rates) if rates else None,
        against=None if published is None else against_published(low, high, published),
    )


def right_of(trained: Trained) -> NDArray[np.bool_]:
    """Returns which test photos a run got right, (photos,)."""
    return np.frombuffer(trained.right.encode("ascii"), np.uint8) == ord("1")


def pair_of(trained: Mapping[Run, Trained], rung: str, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
    """Returns which photos generator and tuned pipeline got right; None where either has not been trained."""
    runs = [trained.get(Run(rung=rung, pipeline=pipeline, seed=seed)) for pipeline in PIPELINES]
    if runs[0] is None or runs[1] is None:
        return None
    return right_of(runs[0]), right_of(runs[1])


def difference(plan: Plan, trained: Mapping[Run, Trained]) -> Difference | None:
    """Returns tuned - generator over all pairs of a rung and a seed; None where there is no pair."""
    pairs = [
        pair for seed in range(plan.seeds) for rung in plan.rungs if (pair := pair_of(trained, rung, seed)) is not None
    ]
    if not pairs:
        return None
    return paired_difference([tuned for _, tuned in pairs], [generator for generator, _ in pairs])


def scripts(trained: Mapping[Run, Trained]) -> tuple[tuple[Run, ScriptCount], ...]:
    """Returns the runs on whose networks the published prediction script was tried, with what it got wrong."""
    return tuple((run, one.script) for run, one in trained.items() if one.script is not None)
