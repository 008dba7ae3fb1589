"""Derives hosts, cores, network, storage, caches and cost of a training, from measured costs and a simulation."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from unstall.benchmarks.capacity.plan import MOST_ACCELERATORS, Asked
from unstall.benchmarks.capacity.samples import Measurements
from unstall.benchmarks.capacity.simulation import Simulated, SimulatedHost, simulate
from unstall.benchmarks.scaleout import model
from unstall.benchmarks.scaleout.check.plan import CheckedPool
from unstall.benchmarks.scaleout.check.results import NEAR_RATIO, costs_of
from unstall.benchmarks.scaleout.check.samples import MeasuredPool
from unstall.benchmarks.scaleout.samples import Constants, Costs, Trainer
from unstall.profiles.report import Document
from unstall.profiles.statistics import geometric_mean

CapacityDocument = Document[Asked, Measurements]

_STEPS, _SMALL_STEPS = 120, 300
# More workers than so many a host are not simulated.
MOST_WORKERS = 128
_FAST = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallRun:
    """A small run, simulated and measured.

    Attributes:
      ratio: simulated over measured images/sec.
      missed: whether that is further than 10 % from 1.
    """

    name: str
    simulated_images_per_sec: float
    images_per_sec: float
    ratio: float
    missed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A number of workers for each trainer's host, and what the simulation says of it.

    Attributes:
      workers: of each trainer's host; 0 where its own cores load.
      images_per_sec: of all accelerators together.
      device_ratio: how far they are used.
      link_ratio: how far each trainer's link is used; None where it is no limit.
      cold_images_per_sec: of an epoch that reads every file from the storage.
      cached: whether the workers' memory holds all files, so that only the first epoch reads the storage.
      hours: of the whole training.
      price: of the whole training; None where the hosts have no price.
    """

    workers: int
    images_per_sec: float
    device_ratio: float
    link_ratio: float | None
    cold_images_per_sec: float
    cached: bool
    hours: float
    price: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What is derived.

    Attributes:
      runs: the small runs.
      trainer_hosts: how many.
      demand_images_per_sec: of all accelerators, never waiting.
      dataset_bytes: of an epoch's files.
      alone: without workers.
      fleets: one worker less than chosen, the chosen, one more.
      chosen: the smallest fleet that uses the accelerators as far as the goal; None where none does.
    """

    runs: tuple[SmallRun, ...] = ()
    trainer_hosts: int = 0
    demand_images_per_sec: float = 0.0
    dataset_bytes: float = 0.0
    alone: Fleet | None = None
    fleets: tuple[Fleet, ...] = ()
    chosen: Fleet | None = None

    @property
    def missed(self) -> tuple[str, ...]:
        return tuple(run.name for run in self.runs if run.missed)


def derive(document: CapacityDocument) -> Results:
    """Simulates the small runs of a document, then the training that is planned."""
    asked, measured = document.plan, document.samples
    if measured.cut is None or measured.constants is None:
        return Results()
    if not 1 <= asked.per_host <= asked.accelerators <= MOST_ACCELERATORS:  # an edited file: no end, or no memory
        raise ValueError(f"{asked.accelerators} accelerators, {asked.per_host} a host")
    costs = _costs(asked, measured)

    @functools.cache
    def fleet(workers: int) -> Fleet:
        return _fleet(asked, measured, costs, workers)

    alone = fleet(0)
    least = _least_workers(asked, costs)
    chosen = None
    if alone.device_ratio < asked.goal_ratio:
        numbers = range(max(1, least - 1), min(MOST_WORKERS, least + 4) + 1)
        chosen = next((fleet(number) for number in numbers if fleet(number).device_ratio >= asked.goal_ratio), None)
    around = chosen.workers if chosen is not None else least
    return Results(
        runs=small_runs(measured),
        trainer_hosts=asked.accelerators // asked.per_host,
        demand_images_per_sec=asked.accelerators * _device_rate(asked),
        dataset_bytes=asked.images * measured.file_bytes,
        alone=alone,
        fleets=tuple(fleet(number) for number in (around - 1, around, around + 1) if number >= 1),
        chosen=chosen,
    )


def _device_rate(asked: Asked) -> float:
    if asked.device.images_per_sec is None:
        raise ValueError("the device has no rate")
    return asked.device.images_per_sec


def _costs(asked: Asked, measured: Measurements) -> Costs:
    assert measured.cut is not None and measured.constants is not None
    return Costs(
        trainer=Trainer(
            device_images_per_sec=_device_rate(asked), model_us=0.0, loader_us=measured.loader_us, most_cores=None
        ),
        cuts=(measured.cut,),
        constants=measured.constants,
        batch_size=asked.config.batch_size,
    )


def _least_workers(asked: Asked, costs: Costs) -> int:
    """Returns the number of workers a host from which the search begins: what they make is what the devices take."""
    rate = model.worker_rate(costs, costs.cuts[0], asked.hosts.worker_cores)
    if asked.hosts.delay_s:
        rate = min(rate, costs.batch_size / model.trip_s(costs, asked.hosts, costs.cuts[0]))
    needed = math.ceil(asked.goal_ratio * asked.per_host * _device_rate(asked) / rate)
    return min(MOST_WORKERS, max(1, needed))


def simulated_host(costs: Costs, hosts: model.Hosts, worker_cores: tuple[float, ...], devices: int) -> SimulatedHost:
    """Returns the times of a batch on a trainer's host with workers; without workers the host itself is one."""
    batch = costs.batch_size
    if not worker_cores:
        own_s = batch * costs.trainer.loader_us / 1e6 / hosts.trainer_cores
        return SimulatedHost(devices=devices, worker_s=(own_s,), link_s=0.0, trainer_s=_FAST)
    cut = costs.cuts[0]
    receive_us = model.receive_us_per_image(costs, cut)
    cores = max(hosts.trainer_cores - costs.constants.standing_cores, 0.01)
    link = hosts.link_bytes_per_sec
    trip_s = model.trip_s(costs, hosts, cut) if hosts.delay_s else 0.0
    return SimulatedHost(
        devices=devices,
        # Where batches are long under way, the next is made meanwhile, but not asked for.
        worker_s=tuple(max(batch / model.worker_rate(costs, cut, of_one), trip_s) for of_one in worker_cores),
        link_s=0.0 if link is None else batch * cut.bytes_per_image / (link * model.PAYLOAD_RATIO),
        trainer_s=batch * max((receive_us + cut.trainer_us) / cores, receive_us) / 1e6,
    )


def _fleet(asked: Asked, measured: Measurements, costs: Costs, workers: int) -> Fleet:
    batch, hosts = asked.config.batch_size, asked.accelerators // asked.per_host
    host = simulated_host(costs, asked.hosts, (asked.hosts.worker_cores,) * workers, asked.per_host)
    warm = _simulated(asked, costs, host, storage_s=0.0, workers=workers)
    storage = asked.storage_bytes_per_sec
    storage_s = batch * measured.file_bytes / storage if storage is not None else 0.0
    cold = _simulated(asked, costs, host, storage_s=storage_s, workers=workers) if storage_s else warm
    cached = workers * hosts * asked.memory_bytes >= asked.images * measured.file_bytes
    rates = [run.steps_per_sec * batch * asked.accelerators for run in (warm, cold)]
    cold_epochs = 1 if cached else asked.epochs
    hours = asked.images * (cold_epochs / rates[1] + (asked.epochs - cold_epochs) / rates[0]) / 3600
    price = None
    if asked.hosts.trainer_price is not None and asked.hosts.worker_price is not None:
        price = hours * hosts * (asked.hosts.trainer_price + workers * asked.hosts.worker_price)
    usual = warm if cached else cold
    link_s = host.link_s * asked.per_host
    return Fleet(
        workers=workers,
        images_per_sec=usual.steps_per_sec * batch * asked.accelerators,
        device_ratio=usual.device_ratio,
        link_ratio=usual.steps_per_sec * link_s if workers and link_s else None,
        cold_images_per_sec=rates[1],
        cached=cached,
        hours=hours,
        price=price,
    )


def _simulated(asked: Asked, costs: Costs, host: SimulatedHost, *, storage_s: float, workers: int) -> Simulated:
    return simulate(
        (host,) * (asked.accelerators // asked.per_host),
        step_s=asked.config.batch_size / _device_rate(asked),
        hand_over_s=costs.constants.hand_over_ms_per_batch / 1e3 if workers else 0.0,
        steps=_STEPS,
        storage_s=storage_s,
    )


def small_runs(measured: Measurements) -> tuple[SmallRun, ...]:
    """Simulates the pools of `scaleout --check`, from costs that were measured on hosts of their quotas."""
    if measured.runs is None or measured.runs.constants is None:
        return ()
    pools = {pool.name: pool for pool in measured.pools}
    constants = measured.runs.constants
    return tuple(_small_run(pools[run.name], run, constants) for run in measured.runs.pools if run.rounds)


def _small_run(pool: CheckedPool, run: MeasuredPool, constants: Constants) -> SmallRun:
    steps_per_sec = [
        simulate(
            (simulated_host(costs_of(pool, round_, constants), pool.hosts, pool.worker_cores, 1),),
            step_s=pool.config.batch_size / pool.device_images_per_sec,
            hand_over_s=constants.hand_over_ms_per_batch / 1e3 if pool.worker_cores else 0.0,
            steps=_SMALL_STEPS,
        ).steps_per_sec
        for round_ in run.rounds
    ]
    simulated = geometric_mean(steps_per_sec) * pool.config.batch_size
    measured = geometric_mean(run.images_per_sec)
    return SmallRun(
        name=pool.name,
        simulated_images_per_sec=simulated,
        images_per_sec=measured,
        ratio=simulated / measured,
        missed=abs(simulated / measured - 1) > NEAR_RATIO,
    )
