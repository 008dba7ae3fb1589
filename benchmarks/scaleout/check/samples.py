"""What is measured of the pools of a check."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.scaleout.samples import Constants, CutCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWindow:
    """One window of a pool, while batches come steadily.

    Attributes:
      images, wall_ns: of the window.
      client_cpu_ns: CPU time of the trainer's process.
      worker_us: microseconds of a core that an image took each worker; empty without workers.
    """

    images: int
    wall_ns: int
    client_cpu_ns: int
    worker_us: tuple[float, ...] = ()

    @property
    def images_per_sec(self) -> float:
        return self.images / self.wall_ns * 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPool:
    """What was measured of a pool.

    Attributes:
      name: of the pool.
      cut: the costs of its cut: before it on a host of its workers' mean quota, behind it on one of the trainer's.
      loader_us: of the whole pipeline, on a host of the trainer's quota; 0 for a pool with workers.
    """

    name: str
    cut: CutCosts
    loader_us: float
    windows: tuple[PoolWindow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSamples:
    """What was measured: the constants once, on one pipeline, and every pool."""

    constants: Constants | None
    pools: tuple[MeasuredPool, ...]
