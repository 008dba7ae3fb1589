"""The results of a check of the tuner: for each target its choice, compared with the best pipeline of the space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.tune.check.samples import CheckSamples, MeasuredConfig, MeasuredTarget
from benchmarks.tune.plan import CheckAsked, Target
from benchmarks.tune.results import Result, rates_of, results_of, shared_rounds
from profiles.report import Document
from profiles.statistics import Interval, geometric_mean, ratio_interval

# Source: the issue that asked for the tuner.
GOAL_RATIO = 0.97

CheckDocument = Document[CheckAsked, CheckSamples]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of one target.

    Attributes:
      chosen: the name of the pipeline that the tuner chose.
      best: the name of the fastest pipeline of the space.
      rates: images/sec of every pipeline of the space, by its name.
      against: the rate of the choice over that of the best, measured side by side, and the 95 % interval; 1 where the
        two are the same. None where the check was stopped before that was measured.
    """

    target: Target
    chosen: str
    best: str
    rates: Mapping[str, float]
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
        return max(checked.exit_code for checked in self.targets)


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
            results.append(_checked(measured, chosen, images, finished=finished))
    return Results(targets=tuple(results))


def _checked(measured: MeasuredTarget, chosen: Result, images: int, *, finished: bool) -> Checked:
    rates = epoch_rates(measured.everything, images)
    best = best_of(measured, images)
    return Checked(
        target=measured.target,
        chosen=chosen.name,
        best=best.name,
        rates={name: geometric_mean(by_round) for name, by_round in rates.items()},
        against=_against(measured, chosen, best, images) if finished else None,
    )


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
