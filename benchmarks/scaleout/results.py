"""Derives from measured costs which pools are worth a look, which is the smallest, and whether a pool pays."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.benchmarks.scaleout import model
from unstall.benchmarks.scaleout.model import MOST_WORKERS, Pool
from unstall.benchmarks.scaleout.plan import Asked
from unstall.benchmarks.scaleout.samples import Costs, Measurements
from unstall.profiles.report import Document

ScaleoutDocument = Document[Asked, Measurements]

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
class Results:
    """What is predicted for all cuts.

    Attributes:
      alone: the training without workers.
      chosen: the pool to take: the smallest that reaches the goal; else the fastest. None where none raises the rate.
      cheapest: the pool, or the trainer alone, whose images cost the least; None without prices.
      verdict: "pays", "does not pay", "faster, but dearer"; "faster" without prices.
    """

    alone: Pool | None = None
    cuts: tuple[CutResult, ...] = ()
    chosen: Pool | None = None
    cheapest: Pool | None = None
    verdict: str = ""


def derive(document: ScaleoutDocument) -> Results:
    """Predicts pools from the costs of a document."""
    asked, costs = document.plan, document.samples.costs
    if costs is None:
        return Results()
    alone = model.alone(costs, asked.hosts)
    cuts = tuple(_cut(asked, costs, cut.served) for cut in costs.cuts)
    chosen = _chosen(alone, cuts, asked.goal_ratio)
    pools = [pool for cut in cuts for pool in cut.pools]
    priced = [pool for pool in (alone, *pools) if pool.price is not None]
    cheapest = min(priced, key=lambda pool: (pool.price or 0.0, pool.workers), default=None)
    return Results(alone=alone, cuts=cuts, chosen=chosen, cheapest=cheapest, verdict=_verdict(alone, chosen))


def _cut(asked: Asked, costs: Costs, served: str) -> CutResult:
    pools: list[Pool] = []
    for workers in range(1, MOST_WORKERS + 1):
        pools.append(model.pool(costs, asked.hosts, served, [asked.hosts.worker_cores] * workers))
        if pools[-1].limit not in ("workers", "delay"):
            break  # one more changes nothing but the price
    cut = next(cut for cut in costs.cuts if cut.served == served)
    return CutResult(
        served=served,
        worker_images_per_sec=model.worker_rate(costs, cut, asked.hosts.worker_cores),
        pools=tuple(pools),
        smallest=next((pool for pool in pools if pool.device_ratio >= asked.goal_ratio), None),
        by_tensorflow=model.by_tensorflow(costs, asked.hosts, served),
    )


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
