"""What is measured of the pools of a check."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.benchmarks.scaleout.samples import Constants, CutCosts


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
class MeasuredPool:
    """What was measured of a pool.

    Attributes:
      name: of the pool.
    """

    name: str
    rounds: tuple[PoolRound, ...] = ()

    @property
    def images_per_sec(self) -> list[float]:
        """The rate of each window."""
        return [round_.window.images_per_sec for round_ in self.rounds]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSamples:
    """What was measured: the constants once, on one pipeline, and every pool."""

    constants: Constants | None
    pools: tuple[MeasuredPool, ...]
