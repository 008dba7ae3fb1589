"""Derives how near the predictions of pools are to what was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unstall.benchmarks.scaleout import model
from unstall.benchmarks.scaleout.check.plan import CheckAsked, CheckedPool
from unstall.benchmarks.scaleout.check.samples import CheckSamples, MeasuredPool, PoolRound
from unstall.benchmarks.scaleout.model import Pool
from unstall.benchmarks.scaleout.samples import Constants, Costs, Trainer
from unstall.profiles.report import Document
from unstall.profiles.statistics import Interval, geometric_mean, ratio_interval

CheckDocument = Document[CheckAsked, CheckSamples]

# A prediction is to be so near to what is measured.
NEAR_RATIO = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolResult:
    """A pool, predicted and measured.

    Attributes:
      predicted: in the middle of the rounds; its rate is the geometric mean of all.
      images_per_sec: measured; geometric mean over the windows.
      ratio, interval: predicted over measured of each round, and the 95 % interval; None for too few rounds.
      device_ratio: how far the emulated device was used.
      missed: whether the prediction is further than 10 % from what was measured.
    """

    name: str
    predicted: Pool
    images_per_sec: float
    ratio: float
    interval: Interval | None
    device_ratio: float
    missed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResults:
    """All pools; `missed` names those whose prediction is too far off."""

    pools: tuple[PoolResult, ...]
    missed: tuple[str, ...]


def derive(document: CheckDocument) -> CheckResults:
    """Predicts every pool that was measured."""
    constants = document.samples.constants
    asked = {pool.name: pool for pool in document.plan.pools}
    pools = tuple(
        _result(asked[measured.name], measured, constants)
        for measured in document.samples.pools
        if measured.rounds and constants is not None
    )
    return CheckResults(pools=pools, missed=tuple(pool.name for pool in pools if pool.missed))


def costs_of(pool: CheckedPool, round_: PoolRound, constants: Constants) -> Costs:
    """Returns what a prediction of a pool is made from."""
    return Costs(
        trainer=Trainer(
            device_images_per_sec=pool.device_images_per_sec,
            model_us=0.0,
            loader_us=round_.loader_us or 0.0,
            most_cores=None,
        ),
        cuts=() if round_.cut is None else (round_.cut,),
        constants=constants,
        batch_size=pool.config.batch_size,
    )


def predicted(pool: CheckedPool, round_: PoolRound, constants: Constants) -> Pool:
    """Predicts a pool from what was measured in a round."""
    costs = costs_of(pool, round_, constants)
    if not pool.worker_cores:
        return model.alone(costs, pool.hosts)
    return model.pool(costs, pool.hosts, pool.config.served, pool.worker_cores)


def _result(pool: CheckedPool, measured: MeasuredPool, constants: Constants) -> PoolResult:
    # Each round has its own prediction: the speed of a shared machine changes between rounds.
    predictions = [predicted(pool, round_, constants) for round_ in measured.rounds]
    rates = [prediction.images_per_sec for prediction in predictions]
    ratio, interval = ratio_interval(rates, measured.images_per_sec)
    middle = sorted(predictions, key=lambda prediction: prediction.images_per_sec)[len(predictions) // 2]
    images_per_sec = geometric_mean(measured.images_per_sec)
    return PoolResult(
        name=pool.name,
        predicted=replace(middle, images_per_sec=geometric_mean(rates)),
        images_per_sec=images_per_sec,
        ratio=ratio,
        interval=interval,
        device_ratio=images_per_sec / pool.device_images_per_sec,
        missed=abs(ratio - 1) > NEAR_RATIO,
    )
