"""The raw samples of a comparison: windows of each subject, with the accounts of its workers."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.pipeline.service import Account, WorkerFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerWindow:
    """What a worker spent in a window: its accounts at the first and the last batch that came, and the time between."""

    first: Account
    last: Account
    wall_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window of a subject: whole epochs.

    Attributes:
      round: the number of the round, from 0.
      images, batches, wall_ns: of the window.
      wait_ns: time in which the consumer waited for a batch.
      end_wait_ns: of this, at the ends of epochs, when only batches of the next epoch came.
      client_cpu_ns: CPU time of the consumer's process.
      machine_cpu_ns: CPU time of all processes of the consumer's host.
      received_bytes: of pixels, or of files of the mean size, and of labels.
      served, repaired, twice: batches of workers, batches that the client made itself, batches that came once more.
      workers: of a service.
    """

    round: int
    images: int
    batches: int
    wall_ns: int
    wait_ns: int
    end_wait_ns: int
    client_cpu_ns: int
    machine_cpu_ns: int
    received_bytes: int
    served: int
    repaired: int
    twice: int
    workers: tuple[WorkerWindow, ...] = ()

    @property
    def images_per_sec(self) -> float:
        return self.images / self.wall_ns * 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredService:
    """What was measured of a subject.

    Attributes:
      service: the config's `service`; "none" for the threads of the consumer's process.
      facts: what each worker says of itself.
    """

    service: str
    facts: tuple[WorkerFacts, ...] = ()
    windows: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured of all subjects.

    Attributes:
      host: what stands for the consumer's host in the names of its workers.
      cores: that the consumer's process may use.
    """

    host: str
    cores: int
    subjects: tuple[MeasuredService, ...]
