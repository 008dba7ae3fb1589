"""Predicts the rate of a training whose batches workers on other hosts make, what limits it, and what an image costs.

It assumes the following:

- All hosts have cores like those that were measured. A worker host runs one worker.
- A worker spends the time before the cut and the time to send; the trainer the time to receive, the time after the
  cut, and that of its model where this computes on the same cores. One thread of the trainer receives all batches.
- All that workers send comes over one link, the trainer's; each worker's own link carries as much.
- The trainer asks each worker for one batch at a time, which takes the way there and back.
- Loading and training overlap, but for the hand-over of a batch that is ready.
- Each trainer's host has workers of its own. All accelerators begin a step together.
- All hosts read from one storage. A worker reads the files of a batch, then makes it, while others read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unstall.benchmarks.service.planning.samples import Costs, CutCosts

# Of what a link carries, this part is payload of TCP: 1,448 of the 1,514 bytes of a frame.
PAYLOAD_RATIO = 1448 / 1514
MOST_WORKERS = 256
# The terms of hosts that wait for each other were held against a simulation of up to 1,024 accelerators.
MOST_ACCELERATORS = 1024
# The time to make a batch differs from batch to batch by so much: the deviation over the mean.
# Source: the spread of a worker's batches of 32 photos in our own runs.
_SPREAD_RATIO = 0.1
LIMITS = {
    "device": "the model's device is the limit",
    "workers": "the workers' cores are the limit",
    "network": "the trainer's link is full",
    "delay": "each worker waits for one batch to arrive before it sends the next",
    "trainer": "the trainer's cores are full",
    "receive": "the thread that receives batches is busy all the time",
    "loader": "the trainer's own pipeline is the limit",
    "storage": "the storage gives the files no faster",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The hosts of a training.

    Attributes:
      worker_cores: of each worker's host.
      trainer_cores: of each trainer's host.
      worker_price, trainer_price: of a host for an hour, in any currency; None where not given.
      link_bytes_per_sec: of each host's link; None where it is no limit.
      delay_s: that bytes take from a worker to the trainer, or back.
      accelerators, per_host: how many in all, and on each trainer's host.
      storage_bytes_per_sec: that all hosts together read at; None where it is no limit.
      memory_bytes: of each worker's host for files that were read; 0 for none.
    """

    worker_cores: float
    trainer_cores: float
    worker_price: float | None = None
    trainer_price: float | None = None
    link_bytes_per_sec: float | None = None
    delay_s: float = 0.0
    accelerators: int = 1
    per_host: int = 1
    storage_bytes_per_sec: float | None = None
    memory_bytes: float = 0.0

    @property
    def trainers(self) -> int:
        """How many trainers' hosts."""
        return self.accelerators // self.per_host

    def price(self, workers: int) -> float | None:
        """Returns the price of an hour with so many workers for each trainer's host; None where hosts have none."""
        if self.trainer_price is None or self.worker_price is None:
            return None
        return self.trainers * (self.trainer_price + workers * self.worker_price)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A number of workers, and what is predicted for them.

    Attributes:
      served: what workers send; "" without workers.
      workers: how many, for each trainer's host.
      images_per_sec: of the training, in all epochs but the first.
      device_ratio: how far the model's devices are used.
      network_bytes_per_sec: what comes over each trainer's link.
      price: of a million images; None where the hosts have no price.
      limit: a key of `LIMITS`.
      first_images_per_sec: of the first epoch, whose files all come from the storage.
      cached: whether the workers' memory holds all files, so that no other epoch reads the storage.
    """

    served: str
    workers: int
    images_per_sec: float
    device_ratio: float
    network_bytes_per_sec: float
    price: float | None
    limit: str
    first_images_per_sec: float
    cached: bool


def alone(costs: Costs, hosts: Hosts) -> Pool:
    """Predicts the training without workers."""
    trainer = costs.trainer
    loader_cores = min(hosts.trainer_cores, trainer.most_cores or math.inf)
    limits = {"trainer": hosts.trainer_cores / (trainer.loader_us + trainer.model_us) * 1e6}
    loader = [loader_cores / trainer.loader_us * 1e6]
    return _pool(costs, hosts, trainer.device_images_per_sec, loader, limits, cut=None, cached=False)


def pool(costs: Costs, hosts: Hosts, served: str, worker_cores: Sequence[float], images: int | None = None) -> Pool:
    """Predicts the training with workers.

    Args:
      served: what they send.
      worker_cores: cores of each worker's host, for one trainer.
      images: of an epoch, which the workers' memory may hold; None where they are not known.
    """
    cut = next(cut for cut in costs.cuts if cut.served == served)
    trainer, standing = costs.trainer, costs.constants.standing_cores
    receive_us = receive_us_per_image(costs, cut)
    trainer_us = receive_us + cut.trainer_us + trainer.model_us
    hand_over_s = costs.constants.hand_over_ms_per_batch / 1e3 / costs.batch_size
    device = 1 / (1 / trainer.device_images_per_sec + hand_over_s)
    limits = {
        "trainer": max(hosts.trainer_cores - standing, 0.01) / trainer_us * 1e6,
        "receive": 1e6 / receive_us,
    }
    if hosts.link_bytes_per_sec is not None:
        limits["network"] = hosts.link_bytes_per_sec * PAYLOAD_RATIO / cut.bytes_per_image
    if hosts.delay_s:
        limits["delay"] = len(worker_cores) * costs.batch_size / _trip_s(costs, hosts, cut)
    workers = [worker_rate(costs, cut, cores) for cores in worker_cores]
    memory_bytes = hosts.trainers * len(workers) * hosts.memory_bytes
    cached = images is not None and memory_bytes >= images * costs.file_bytes
    return _pool(costs, hosts, device, workers, limits, cut=cut, cached=cached)


def in_lock_step(rates: Sequence[float]) -> float:
    """Returns the images/sec of hosts that begin each step together, from what each would make alone.

    The slowest host sets the pace. And as the time to make a batch varies, each step waits for the host whose batch
    comes last, as far as the batches that lie ready do not make up for it.

    Source: fitted to a simulation, batch by batch, of up to 128 hosts (docs/evidence/service-plan.md).
    """
    hosts = len(rates)
    waiting = _SPREAD_RATIO**2 * (1 + math.log(hosts)) / 4 if hosts > 1 else 0.0
    return hosts * min(rates) / (1 + waiting)


def _trip_s(costs: Costs, hosts: Hosts, cut: CutCosts) -> float:
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


def _pool(
    costs: Costs,
    hosts: Hosts,
    device: float,
    makers: Sequence[float],
    limits: Mapping[str, float],
    *,
    cut: CutCosts | None,
    cached: bool,
) -> Pool:
    """Returns what is predicted from the limits of one trainer's host, and from the storage that all hosts share.

    Args:
      device: images/sec of an accelerator that never waits for more than the hand-over.
      makers: images/sec of each worker, or of the trainer's own pipeline.
      limits: images/sec by what else limits them.
      cached: whether only the first epoch reads the storage.
    """

    def limited(file_s: float) -> dict[str, float]:
        made = sum(rate / (1 + rate * file_s) for rate in makers)
        return {
            "device": hosts.accelerators * device,
            "workers" if cut else "loader": in_lock_step([made] * hosts.trainers),
            **{name: hosts.trainers * limit for name, limit in limits.items()},
            **({"storage": 1 / file_s} if file_s else {}),
        }

    storage = hosts.storage_bytes_per_sec
    first = limited(0.0 if storage is None else costs.file_bytes / storage)
    usual = limited(0.0) if cached else first
    limit = min(usual, key=lambda name: usual[name])
    rate, workers = usual[limit], len(makers) if cut else 0
    if limit in ("workers", "loader") and rate < limited(0.0)[limit] / 2:
        limit = "storage"  # they read longer than they make
    price = hosts.price(workers)
    return Pool(
        served=cut.served if cut else "",
        workers=workers,
        images_per_sec=rate,
        device_ratio=rate / hosts.accelerators / costs.trainer.device_images_per_sec,
        network_bytes_per_sec=rate / hosts.trainers * cut.bytes_per_image if cut else 0.0,
        price=None if price is None else price / 3600 / rate * 1e6,
        limit=limit,
        first_images_per_sec=min(first.values()),
        cached=cached,
    )


def by_tensorflow(costs: Costs, hosts: Hosts, served: str) -> int:
    """Returns the number of workers for each trainer's host by the formula of TensorFlow's own service.

    The rate at which the trainer consumes, over the mean rate of a worker. It knows neither a link nor the trainer's
    cores.

    Source: `AutoScaler` in TensorFlow's `core/data/service/auto_scaler.h`.
    """
    cut = next(cut for cut in costs.cuts if cut.served == served)
    consumed = costs.trainer.device_images_per_sec * hosts.per_host
    return math.ceil(consumed / worker_rate(costs, cut, hosts.worker_cores))
