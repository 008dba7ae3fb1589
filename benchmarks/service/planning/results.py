"""Derives from measured costs which pools are worth a look, which is the smallest, and whether a pool pays."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from unstall.benchmarks.service.planning import model
from unstall.benchmarks.service.planning.model import MOST_ACCELERATORS, MOST_WORKERS, Pool
from unstall.benchmarks.service.planning.plan import Asked
from unstall.benchmarks.service.planning.samples import Costs, Measurements
from unstall.profiles.report import Document

PlanDocument = Document[Asked, Measurements]

# A pool that raises the rate by less is not worth another host.
_GAIN_RATIO = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CutResult:
    """What is predicted for a cut.

    Attributes:
      served: what workers send.
      worker_images_per_sec: of one worker.
      pools: with few workers, up to where one more changes nothing.
      smallest: the first that uses the device as far as the goal; None where none does.
      by_tensorflow: the number of workers by TensorFlow's own formula.
    """

    served: str
    worker_images_per_sec: float
    pools: tuple[Pool, ...]
    smallest: Pool | None
    by_tensorflow: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The whole training, with the pool to take, or without workers where none pays.

    Attributes:
      first_epoch_s: of the epoch that reads all files from the storage.
      price: None where the hosts have no price.
    """

    hours: float
    first_epoch_s: float
    price: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What is predicted for all cuts.

    Attributes:
      alone: the training without workers.
      chosen: the pool to take: the smallest that reaches the goal; else the fastest. None where none raises the rate.
      cheapest: the pool, or the trainer alone, whose images cost the least; None without prices.
      verdict: "pays", "does not pay", "faster, but dearer"; "faster" without prices.
      training: None where its images are not stated.
    """

    alone: Pool | None = None
    cuts: tuple[CutResult, ...] = ()
    chosen: Pool | None = None
    cheapest: Pool | None = None
    verdict: str = ""
    training: Training | None = None


def derive(document: PlanDocument) -> Results:
    """Predicts pools from the costs of a document.

    Raises:
      ValueError: if the document holds hosts that the command refuses.
    """
    asked, costs = document.plan, costs_of(document)
    if costs is None:
        return Results()
    if not 1 <= asked.hosts.per_host <= asked.hosts.accelerators <= MOST_ACCELERATORS:  # an edited file
        raise ValueError(f"{asked.hosts.accelerators} accelerators, {asked.hosts.per_host} a host")
    alone = model.alone(costs, asked.hosts)
    cuts = tuple(_cut(asked, costs, cut.served) for cut in costs.cuts)
    chosen = _chosen(alone, cuts, asked.goal_ratio)
    pools = [pool for cut in cuts for pool in cut.pools]
    priced = [pool for pool in (alone, *pools) if pool.price is not None]
    cheapest = min(priced, key=lambda pool: (pool.price or 0.0, pool.workers), default=None)
    return Results(
        alone=alone,
        cuts=cuts,
        chosen=chosen,
        cheapest=cheapest,
        verdict=_verdict(alone, chosen),
        training=_training(asked, chosen or alone),
    )


def costs_of(document: PlanDocument) -> Costs | None:
    """Returns the costs that were measured; accelerators of a fleet, which are not here, have the rate that is stated.

    Raises:
      ValueError: if the document states none.
    """
    asked, costs = document.plan, document.samples.costs
    if costs is None or asked.hosts.accelerators == 1:
        return costs
    if asked.device.images_per_sec is None:  # an edited file
        raise ValueError("the device has no rate")
    return replace(costs, trainer=replace(costs.trainer, device_images_per_sec=asked.device.images_per_sec))


def _cut(asked: Asked, costs: Costs, served: str) -> CutResult:
    hosts, holding, pools = asked.hosts, _workers_that_hold(asked, costs), list[Pool]()
    for workers in range(1, MOST_WORKERS + 1):
        pools.append(model.pool(costs, hosts, served, [hosts.worker_cores] * workers, asked.images))
        more = model.pool(costs, hosts, served, [hosts.worker_cores] * (workers + 1), asked.images)
        waits = pools[-1].limit == "storage" and workers < holding
        if more.images_per_sec <= pools[-1].images_per_sec and not waits:
            break  # one more changes nothing but the price
    cut = next(cut for cut in costs.cuts if cut.served == served)
    return CutResult(
        served=served,
        worker_images_per_sec=model.worker_rate(costs, cut, hosts.worker_cores),
        pools=tuple(pools),
        smallest=next((pool for pool in pools if pool.device_ratio >= asked.goal_ratio), None),
        by_tensorflow=model.by_tensorflow(costs, hosts, served),
    )


def _workers_that_hold(asked: Asked, costs: Costs) -> int:
    """Returns how many workers for each trainer hold all files in their memory; 0 where no number does."""
    hosts = asked.hosts
    if asked.images is None or not hosts.memory_bytes:
        return 0
    workers = math.ceil(asked.images * costs.file_bytes / hosts.memory_bytes / hosts.trainers)
    return workers if workers <= MOST_WORKERS else 0


def _chosen(alone: Pool, cuts: tuple[CutResult, ...], goal_ratio: float) -> Pool | None:
    """Returns the pool to take: of those that reach the goal, the fewest workers; of equals, the least network."""
    if alone.device_ratio >= goal_ratio:
        return None
    reach = [cut.smallest for cut in cuts if cut.smallest is not None]
    if reach:
        return min(reach, key=lambda pool: (pool.workers, pool.network_bytes_per_sec))
    fastest = max((cut.pools[-1] for cut in cuts), key=lambda pool: pool.images_per_sec)
    return fastest if fastest.images_per_sec >= _GAIN_RATIO * alone.images_per_sec else None


def _verdict(alone: Pool, chosen: Pool | None) -> str:
    if chosen is None:
        return "does not pay"
    if chosen.price is None or alone.price is None:
        return "faster"
    return "pays" if chosen.price <= alone.price else "faster, but dearer"


def _training(asked: Asked, pool: Pool) -> Training | None:
    if asked.images is None:
        return None
    first_epoch_s = asked.images / pool.first_images_per_sec
    hours = (first_epoch_s + (asked.epochs - 1) * asked.images / pool.images_per_sec) / 3600
    price = asked.hosts.price(pool.workers)
    return Training(hours=hours, first_epoch_s=first_epoch_s, price=None if price is None else hours * price)
