"""Predicts the rate of a training whose batches workers on other hosts make, what limits it, and what an image costs.

It assumes the following:

- All hosts have cores like those that were measured. A worker host runs one worker.
- A worker spends the time before the cut and the time to send; the trainer the time to receive, the time behind the
  cut, and that of its model where this computes on the same cores. One thread of the trainer receives all batches.
- All that workers send comes over one link, the trainer's; each worker's own link carries as much.
- The trainer asks each worker for one batch at a time, which takes the way there and back.
- Loading and training overlap, but for the hand-over of a batch that is ready.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unstall.benchmarks.scaleout.samples import Costs, CutCosts

# Of what a link carries, this part is payload of TCP: 1,448 of the 1,514 bytes of a frame.
PAYLOAD_RATIO = 1448 / 1514
MOST_WORKERS = 256
LIMITS = {
    "device": "the model's device is the limit",
    "workers": "the workers' cores are the limit",
    "network": "the trainer's link is full",
    "delay": "each worker waits for one batch to arrive before it sends the next",
    "trainer": "the trainer's cores are full",
    "receive": "the thread that receives batches is busy all the time",
    "loader": "the trainer's own pipeline is the limit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The hosts of a pool.

    Attributes:
      worker_cores: of each worker's host.
      trainer_cores: of the trainer's host.
      worker_price, trainer_price: of a host for an hour, in any currency; None where not given.
      link_bytes_per_sec: of each host's link; None where it is no limit.
      delay_s: that bytes take from a worker to the trainer, or back.
    """

    worker_cores: float
    trainer_cores: float
    worker_price: float | None = None
    trainer_price: float | None = None
    link_bytes_per_sec: float | None = None
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A number of workers, and what is predicted for them.

    Attributes:
      served: what workers send; "" without workers.
      workers: how many.
      images_per_sec: of the training.
      device_ratio: how far the model's device is used.
      network_bytes_per_sec: what comes over the trainer's link.
      price: of a million images; None where the hosts have no price.
      limit: a key of `LIMITS`.
    """

    served: str
    workers: int
    images_per_sec: float
    device_ratio: float
    network_bytes_per_sec: float
    price: float | None
    limit: str


def alone(costs: Costs, hosts: Hosts) -> Pool:
    """Predicts the training without workers."""
    trainer = costs.trainer
    loader_cores = min(hosts.trainer_cores, trainer.most_cores or math.inf)
    limits = {
        "device": trainer.device_images_per_sec,
        "loader": loader_cores / trainer.loader_us * 1e6,
        "trainer": hosts.trainer_cores / (trainer.loader_us + trainer.model_us) * 1e6,
    }
    return _pool(costs, hosts, limits, workers=0, cut=None)


def pool(costs: Costs, hosts: Hosts, served: str, worker_cores: Sequence[float]) -> Pool:
    """Predicts the training with workers.

    Args:
      served: what they send.
      worker_cores: cores of each worker's host.
    """
    cut = next(cut for cut in costs.cuts if cut.served == served)
    trainer, standing = costs.trainer, costs.constants.standing_cores
    receive_us = receive_us_per_image(costs, cut)
    trainer_us = receive_us + cut.trainer_us + trainer.model_us
    hand_over_s = costs.constants.hand_over_ms_per_batch / 1e3 / costs.batch_size
    limits = {
        "device": 1 / (1 / trainer.device_images_per_sec + hand_over_s),
        "workers": sum(worker_rate(costs, cut, cores) for cores in worker_cores),
        "trainer": max(hosts.trainer_cores - standing, 0.01) / trainer_us * 1e6,
        "receive": 1e6 / receive_us,
    }
    if hosts.link_bytes_per_sec is not None:
        limits["network"] = hosts.link_bytes_per_sec * PAYLOAD_RATIO / cut.bytes_per_image
    if hosts.delay_s:
        limits["delay"] = len(worker_cores) * costs.batch_size / trip_s(costs, hosts, cut)
    return _pool(costs, hosts, limits, workers=len(worker_cores), cut=cut)


def trip_s(costs: Costs, hosts: Hosts, cut: CutCosts) -> float:
    """Returns the seconds from the request for a batch that is ready until it is received.

    TensorFlow's client asks each worker for one batch at a time.
    """
    return 2 * hosts.delay_s + costs.batch_size * receive_us_per_image(costs, cut) / 1e6


def worker_rate(costs: Costs, cut: CutCosts, cores: float) -> float:
    """Returns the images/sec that a worker with so many cores makes and sends."""
    constants = costs.constants
    per_batch_us = constants.send_ms_per_batch * 1e3 / costs.batch_size
    send_us = per_batch_us + constants.send_ms_per_megabyte * cut.bytes_per_image / 1e3
    cores = max(min(cores, costs.trainer.most_cores or math.inf) - constants.worker_standing_cores, 0.01)
    return cores / (cut.worker_us + send_us) * 1e6


def receive_us_per_image(costs: Costs, cut: CutCosts) -> float:
    """Returns the microseconds of a core that the trainer takes to receive an image."""
    constants = costs.constants
    per_batch_us = constants.receive_ms_per_batch * 1e3 / costs.batch_size
    return per_batch_us + constants.receive_ms_per_megabyte * cut.bytes_per_image / 1e3


def _pool(costs: Costs, hosts: Hosts, limits: dict[str, float], *, workers: int, cut: CutCosts | None) -> Pool:
    limit = min(limits, key=lambda name: limits[name])
    rate = limits[limit]
    price = None
    if hosts.trainer_price is not None and hosts.worker_price is not None:
        price = (hosts.trainer_price + workers * hosts.worker_price) / 3600 / rate * 1e6
    return Pool(
        served=cut.served if cut else "",
        workers=workers,
        images_per_sec=rate,
        device_ratio=rate / costs.trainer.device_images_per_sec,
        network_bytes_per_sec=rate * cut.bytes_per_image if cut else 0.0,
        price=price,
        limit=limit,
    )


def by_tensorflow(costs: Costs, hosts: Hosts, served: str) -> int:
    """Returns the number of workers by the formula of TensorFlow's own service.

    The rate at which the trainer consumes, over the mean rate of a worker. It knows neither a link nor the trainer's
    cores.

    Source: `AutoScaler` in TensorFlow's `core/data/service/auto_scaler.h`.
    """
    cut = next(cut for cut in costs.cuts if cut.served == served)
    return math.ceil(costs.trainer.device_images_per_sec / worker_rate(costs, cut, hosts.worker_cores))
