"""What runs come to, by pure functions: a row for each rung, the difference of the pairs, the file that goes on later.

Two runs of the same rung and seed, one a pipeline, make a pair. Their difference has two kinds of chance. Training is
one: with another seed another network comes out, and another difference. The test photos are the other: they are some
of all cats and dogs, and the same ones in every pair, so that what is odd about them is no less odd after many pairs.
An interval over the pairs' differences alone would miss that; one from the number of photos alone would miss the first.

So the right answers are laid out as a table of pairs x photos, x = right with the tuned pipeline - right with the
generator, -1 to 1, of which both margins are samples: x = mean + pair + photo + rest. The variance of the mean is then
    var(pairs' means) / P + var(photos' means) / N - var(rest) / (P N),
where the first two terms each hold the rest once, which is counted once too often. Source: the two-way layout with
random effects, such as S. R. Searle, G. Casella, C. E. McCulloch, "Variance Components", 1992, chapter 4.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # its parts are imported when they are first named: `scipy.stats` takes a second
from numpy.typing import NDArray

from benchmarks.accuracy.plan import PIPELINES, RUNGS, Plan, Run
from benchmarks.accuracy.samples import ScriptCount, Trained
from benchmarks.lab.options import UserError
from benchmarks.lab.photos import Splits
from pipeline import ConfigError
from pipeline.config import config_from_dict, config_to_dict
from profiles import Device, provenance
from profiles.devices import parse_device
from profiles.report import SCHEMA_VERSION
from profiles.statistics import CONFIDENCE, median, share_interval

# What a faster pipeline may cost, as a share of the test photos: two points of accuracy.
MARGIN = 0.02
# Verdicts, and the exit code of each.
VERDICTS = {"costs no more than 2 points": 0, "costs": 1, "not shown either way": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Accuracy with the tuned pipeline less accuracy with the generator, over all pairs of runs.

    Attributes:
      mean: a share of the photos; below 0 the tuned pipeline's networks are less accurate.
      low, high: of the 95 % interval; None where one pair says nothing of how pairs differ.
      seed_error, photo_error: standard errors of the mean, from the pairs' means and from the photos'.
    """

    mean: float
    low: float | None
    high: float | None
    pairs: int
    photos: int
    seed_error: float | None = None
    photo_error: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def paired_difference(tuned: Sequence[NDArray[np.bool_]], generator: Sequence[NDArray[np.bool_]]) -> Difference:
    """Returns the mean difference of pairs of runs, and its 95 % interval.

    Student's t with one degree of freedom less than there are pairs: how much pairs differ is what is known least.

    Args:
      tuned, generator: which photos a run got right, (photos,), the same photos in all; one of each a pair.
    Raises:
      ValueError: if there is no pair, or the runs are of other numbers of photos.
    """
    if not tuned or len({len(one) for one in (*tuned, *generator)}) != 1 or len(tuned) != len(generator):
        raise ValueError(
            "Pairs need as many runs of each pipeline, at least one, on the same photos. "
            f"Received: {[len(one) for one in tuned]} and {[len(one) for one in generator]} photos."
        )
    table = np.stack(tuned).astype(np.float64) - np.stack(generator)
    pairs, photos = table.shape
    mean = float(table.mean())
    if pairs < 2 or photos < 2:
        return Difference(mean=mean, low=None, high=None, pairs=pairs, photos=photos)
    by_pair, by_photo = table.mean(axis=1), table.mean(axis=0)
    rest = table - by_pair[:, np.newaxis] - by_photo + mean
    from_pairs = float(by_pair.var(ddof=1)) / pairs
    from_photos = float(by_photo.var(ddof=1)) / photos
    from_rest = float((rest**2).sum()) / ((pairs - 1) * (photos - 1)) / (pairs * photos)
    # By chance the rest can come out above one of the terms that hold it; neither kind is ever below nothing.
    error = math.sqrt(max(from_pairs + from_photos - from_rest, from_pairs, from_photos))
    half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, pairs - 1)) * error
    return Difference(
        mean=mean,
        low=mean - half,
        high=mean + half,
        pairs=pairs,
        photos=photos,
        seed_error=math.sqrt(from_pairs),
        photo_error=math.sqrt(from_photos),
    )


def judge(difference: Difference | None) -> str:
    """Returns what a difference shows, one of `VERDICTS`.

    It "costs" where the whole interval is below 0 and it may be more than the margin; where all of it is above minus
    the margin, it costs no more than that, whether it costs a little or nothing.
    """
    if difference is None or difference.low is None or difference.high is None:
        return "not shown either way"
    if difference.low >= -MARGIN:
        return "costs no more than 2 points"
    return "costs" if difference.high < 0 else "not shown either way"


def against_published(low: float, high: float, published: float) -> str:
    """Returns how an accuracy's 95 % interval lies to a published figure, which has no interval of its own."""
    if low <= published <= high:
        return "as published"
    return "above" if low > published else "below"


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


RESULTS = "accuracy.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What an interrupted ladder left: what was asked of it, on which photos, and what it has trained."""

    plan: Plan
    device: Device
    fingerprints: tuple[str, str]
    created: str
    trained: dict[Run, Trained]


def fingerprints(splits: Splits) -> tuple[str, str]:
    """Returns what tells these photos from any others: those to train on, those to test with."""
    return splits.train.fingerprint, splits.test.fingerprint


def to_document(
    plan: Plan,
    splits: Splits,
    device: Device,
    trained: Mapping[Run, Trained],
    failures: Mapping[Run, str],
    *,
    data: str,
    created: str,
    complete: bool,
) -> dict[str, Any]:
    """Returns the content of accuracy.json."""
    photos = splits.train.images
    found = difference(plan, trained)
    backend = next((one.backend for one in trained.values()), {})
    return {
        "schema_version": SCHEMA_VERSION,
        "created": created,
        "complete": complete,
        "provenance": {**provenance.machine(), **backend},
        "settings": {
            "data": provenance.without_folder(data),
            "rungs": list(plan.rungs),
            "seeds": plan.seeds,
            "images_seen": plan.images_seen,
            "passes": plan.passes(photos),
            "tuned_name": plan.tuned_name,
            "tuned": config_to_dict(plan.tuned),
            "device": device.name,
            "tested_with": splits.how,
        },
        "dataset": {"train": splits.train.to_dict(), "test": splits.test.to_dict()},
        "rungs": [one.to_dict() for one in rows(plan, trained, train_photos=photos, test_photos=splits.test.images)],
        "difference": None if found is None else found.to_dict(),
        "verdict": judge(found),
        "runs": [
            {**_run(run), "images_seen": plan.passes(photos) * photos, **trained[run].to_dict()}
            for run in plan.runs
            if run in trained
        ],
        "failures": [{**_run(run), "reason": reason} for run, reason in failures.items()],
    }


def _run(run: Run) -> dict[str, Any]:
    return {"rung": run.rung, "pipeline": run.pipeline, "seed": run.seed}


def read_earlier(folder: Path) -> Earlier:
    """Reads what an interrupted ladder left in its folder.

    Raises:
      UserError: if there is nothing that could be gone on with.
    """
    path = folder / RESULTS
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        settings = document["settings"]
        if document["complete"]:
            raise UserError(f"--resume {folder}: that run has come to its end; nothing is left to train.")
        plan = Plan(
            rungs=tuple(settings["rungs"]),
            seeds=settings["seeds"],
            images_seen=settings["images_seen"],
            tuned=config_from_dict(settings["tuned"]),
            tuned_name=settings["tuned_name"],
        )
        if document["schema_version"] != SCHEMA_VERSION or not set(plan.rungs) <= set(RUNGS):
            raise KeyError("written by another version")
        return Earlier(
            plan=plan,
            device=parse_device(settings["device"]),
            fingerprints=(document["dataset"]["train"]["fingerprint"], document["dataset"]["test"]["fingerprint"]),
            created=document["created"],
            trained={
                Run(rung=one["rung"], pipeline=one["pipeline"], seed=one["seed"]): Trained.from_dict(one)
                for one in document["runs"]
            },
        )
    except OSError as error:
        raise UserError(f"--resume {folder}: {RESULTS} cannot be read there: {error.strerror}.") from error
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise UserError(f"--resume {path} is not what benchmarks.accuracy wrote, or is of another version.") from error
