"""Whether one pipeline's networks are less accurate than another's: an interval with both kinds of chance in it.

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

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from profiles.statistics import CONFIDENCE

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
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, pairs - 1)) * error
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
