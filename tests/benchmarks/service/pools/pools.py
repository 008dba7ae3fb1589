"""The pools of emulated hosts that predictions of `unstall service plan` are held against."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unstall.benchmarks.service.planning.model import Hosts
from unstall.pipeline import VARIANTS, PipelineConfig

_COMPOSED = replace(VARIANTS["tf-data-composed"], workers=2, autotune=False, prefetch=2)
_SEPARATE = replace(VARIANTS["tf-data-autotune"], workers=2, autotune=False, prefetch=2)
_FAST = 20_000.0
_MBIT_100, _GBIT = 100e6 / 8, 1e9 / 8
# A prediction is to be so near to what is measured.
NEAR_RATIO = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPool:
    """A pool that is measured.

    Attributes:
      name: in words.
      config: the pipeline, with what workers send.
      worker_cores: the quota of each worker's host; none for the trainer alone.
      trainer_cores: the quota of the trainer's host.
      link_bytes_per_sec: of each link; None where nothing limits it.
      device_images_per_sec: what the emulated device consumes.
      delay_s: that bytes take one way; of hosts that are cores only.
      near_ratio: how far a prediction may be from what is measured.
    """

    name: str
    config: PipelineConfig
    worker_cores: tuple[float, ...]
    trainer_cores: float
    link_bytes_per_sec: float | None = _GBIT
    device_images_per_sec: float = _FAST
    delay_s: float = 0.0
    near_ratio: float = NEAR_RATIO

    @property
    def hosts(self) -> Hosts:
        """The hosts as a prediction takes them; each worker's cores are its own."""
        return Hosts(
            worker_cores=1.0,
            trainer_cores=self.trainer_cores,
            link_bytes_per_sec=self.link_bytes_per_sec,
            delay_s=self.delay_s,
        )


def _sized(config: PipelineConfig, size: int, served: str = "batches") -> PipelineConfig:
    return replace(config, image_size=(size, size), served=served)


def _goal_pools() -> tuple[CheckedPool, ...]:
    """Returns pools of slow workers around the smallest that uses 0.9 of a device, which has two workers."""
    return tuple(
        CheckedPool(
            name=f"goal, {workers} of 0.25",
            config=_sized(_COMPOSED, 64),
            worker_cores=(0.25,) * workers,
            trainer_cores=0.6,
            device_images_per_sec=1500.0,
        )
        for workers in (1, 2, 3, 4)
    )


# The constants are measured on batches of 48 and 96 px, which no pool has.
CONSTANTS_CONFIG = _sized(_COMPOSED, 48)

# All quotas of a pool together leave room on two cores for this process and for the system: at most 1.6 cores.
POOLS = (
    CheckedPool(name="alone", config=_sized(_COMPOSED, 64), worker_cores=(), trainer_cores=0.6),
    CheckedPool(name="1 of 0.4", config=_sized(_COMPOSED, 64), worker_cores=(0.4,), trainer_cores=0.6),
    CheckedPool(name="2 of 0.4", config=_sized(_COMPOSED, 64), worker_cores=(0.4, 0.4), trainer_cores=0.6),
    CheckedPool(name="3 of 0.3", config=_sized(_COMPOSED, 64), worker_cores=(0.3, 0.3, 0.3), trainer_cores=0.6),
    CheckedPool(name="0.2 and 0.5", config=_sized(_COMPOSED, 64), worker_cores=(0.2, 0.5), trainer_cores=0.6),
    CheckedPool(name="128 px", config=_sized(_COMPOSED, 128), worker_cores=(0.4, 0.4), trainer_cores=0.6),
    CheckedPool(
        name="128 px, 100 mbit",
        config=_sized(_COMPOSED, 128),
        worker_cores=(0.5, 0.5),
        trainer_cores=0.6,
        link_bytes_per_sec=_MBIT_100,
    ),
    CheckedPool(
        name="files, 100 mbit",
        config=_sized(_SEPARATE, 64, "files"),
        worker_cores=(0.4,),
        trainer_cores=1.0,
        link_bytes_per_sec=_MBIT_100,
    ),
    CheckedPool(name="files", config=_sized(_SEPARATE, 64, "files"), worker_cores=(0.4,), trainer_cores=0.6),
    CheckedPool(name="images", config=_sized(_SEPARATE, 64, "images"), worker_cores=(0.4, 0.4), trainer_cores=0.6),
    CheckedPool(name="batches", config=_sized(_SEPARATE, 64), worker_cores=(0.4, 0.4), trainer_cores=0.6),
    *_goal_pools(),
)

# One core each, by affinity, which needs no rights; and the link is a relay. Its batches are small: the relay carries
# both ways in turns, and lets the sender of a large batch wait for leave to go on.
LOOPBACK_POOLS = (
    CheckedPool(
        name="1 worker", config=_sized(_COMPOSED, 64), worker_cores=(1.0,), trainer_cores=1.0, link_bytes_per_sec=None
    ),
    CheckedPool(
        name="1 worker, 40 mbit",
        config=replace(_sized(_COMPOSED, 64), batch_size=8),
        worker_cores=(1.0,),
        trainer_cores=1.0,
        link_bytes_per_sec=40e6 / 8,
    ),
    CheckedPool(
        name="1 worker, 20 ms away",
        config=_sized(_COMPOSED, 64),
        worker_cores=(1.0,),
        trainer_cores=1.0,
        link_bytes_per_sec=None,
        delay_s=0.02,
        near_ratio=0.15,  # the relay takes some milliseconds of its own
    ),
    CheckedPool(
        name="1 worker, 600 img/s",
        config=_sized(_COMPOSED, 64),
        worker_cores=(1.0,),
        trainer_cores=1.0,
        link_bytes_per_sec=None,
        device_images_per_sec=600.0,
    ),
)
