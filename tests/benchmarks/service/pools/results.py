"""What is measured of a pool, and how near its prediction is to that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.benchmarks.service.pools.pools import CheckedPool
from unstall.benchmarks.service.planning import model
from unstall.benchmarks.service.planning.model import Pool
from unstall.benchmarks.service.planning.samples import Constants, Costs, CutCosts, Trainer
from unstall.profiles.statistics import Interval, geometric_mean, range_cell, ratio_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWindow:
    """One window of a pool, while batches come steadily.

    Attributes:
      images, wall_ns: of the window.
      worker_us: microseconds of a core that an image took each worker; empty without workers.
    """

    images: int
    wall_ns: int
    worker_us: tuple[float, ...] = ()

    @property
    def images_per_sec(self) -> float:
        return self.images / self.wall_ns * 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRound:
    """What an image costs on a host like those of a pool, and right after it a window of the pool.

    Attributes:
      cut: `worker_us` with the mean quota of the workers, `trainer_us` with the trainer's; None without workers.
      loader_us: microseconds of a core in the whole pipeline, with the trainer's quota; None for a pool with workers.
    """

    cut: CutCosts | None
    loader_us: float | None
    window: PoolWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolResult:
    """A pool, predicted and measured.

    Attributes:
      predicted: in the middle of the rounds; its rate is the geometric mean of all.
      images_per_sec: measured; geometric mean over the windows.
      ratio, interval: predicted over measured of each round, and the 95 % interval; None for too few rounds.
      device_ratio: how far the emulated device was used.
      missed: whether the prediction is further from what was measured than the pool allows.
    """

    name: str
    predicted: Pool
    images_per_sec: float
    ratio: float
    interval: Interval | None
    device_ratio: float
    missed: bool

    def __str__(self) -> str:
        """Returns a row of the table in docs/evidence/service-plan.md."""
        return (
            f"{self.name:<22} {self.predicted.images_per_sec:>9,.0f} {self.images_per_sec:>8,.0f} "
            f"{self.ratio:.2f}{' !' if self.missed else '  '} {range_cell(self.interval):>9} {self.device_ratio:>6.0%} "
            f"{self.predicted.limit}"
        )


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
        file_bytes=0.0,  # no pool has a storage that limits it
    )


def predicted(pool: CheckedPool, round_: PoolRound, constants: Constants) -> Pool:
    """Predicts a pool from what was measured in a round."""
    costs = costs_of(pool, round_, constants)
    if not pool.worker_cores:
        return model.alone(costs, pool.hosts)
    return model.pool(costs, pool.hosts, pool.config.served, pool.worker_cores)


def result_of(pool: CheckedPool, rounds: Sequence[PoolRound], constants: Constants) -> PoolResult:
    """Compares a pool's rounds with their predictions."""
    # Each round has its own prediction: the speed of a shared machine changes between rounds.
    predictions = [predicted(pool, round_, constants) for round_ in rounds]
    rates = [prediction.images_per_sec for prediction in predictions]
    measured = [round_.window.images_per_sec for round_ in rounds]
    ratio, interval = ratio_interval(rates, measured)
    middle = sorted(predictions, key=lambda prediction: prediction.images_per_sec)[len(predictions) // 2]
    images_per_sec = geometric_mean(measured)
    return PoolResult(
        name=pool.name,
        predicted=replace(middle, images_per_sec=geometric_mean(rates)),
        images_per_sec=images_per_sec,
        ratio=ratio,
        interval=interval,
        device_ratio=images_per_sec / pool.device_images_per_sec,
        missed=abs(ratio - 1) > pool.near_ratio,
    )
