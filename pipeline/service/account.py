"""What a worker says of itself: facts at its start, and with each batch an account of what it has spent until then.

By these a client can tell where time goes. No TensorFlow here: whoever prints a run reads this, too.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from unstall.pipeline.clock import now_ns, process_cpu_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """A worker, as it describes itself at its start.

    Attributes:
      worker: host and process.
      cores: CPUs that it may use.
      images, batches: of an epoch of its pipeline; 0 where it does not know.
      functions: the names of the pipeline's Python functions, each with a digest.
      parts: of our own pipelines, what the batches depend on, by name.
      costs_us: microseconds of one core that an image takes, by stage, as the worker measured it at its start.
    """

    worker: str
    cores: int
    images: int
    batches: int
    functions: tuple[str, ...]
    parts: Mapping[str, str] = field(default_factory=dict)
    costs_us: Mapping[str, float] = field(default_factory=dict)

    def text(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def read_facts(text: bytes) -> WorkerFacts:
    """Reads what `WorkerFacts.text` returns."""
    values: dict[str, Any] = json.loads(text)
    return WorkerFacts(**{**values, "functions": tuple(values["functions"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A worker's sums since it started.

    Attributes:
      worker: host and process.
      cores: CPUs that the worker may use.
      up_ns: time since the worker started.
      cpu_ns: CPU time of its process.
      split_wait_ns: time in which it had nothing to do, between the end of a chunk and the next chunk. Where the client
        takes batches slower than they are made, this is the client's time.
      images: how many images it has made.
    """

    worker: str
    cores: int
    up_ns: int
    cpu_ns: int
    split_wait_ns: int
    images: int

    def text(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def read_account(text: bytes) -> Account:
    """Reads what `Account.text` returns."""
    return Account(**json.loads(text))


def usable_cores() -> int:
    """Returns how many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Ledger:
    """Adds up what a worker spends. Safe in threads.

    Args:
      now, cpu: clocks in nanoseconds.
    """

    def __init__(self, now: Callable[[], int] = now_ns, cpu: Callable[[], int] = process_cpu_ns) -> None:
        self._now = now
        self._cpu = cpu
        self._lock = threading.Lock()
        self.worker = f"{os.uname().nodename}:{os.getpid()}"
        self._cores = usable_cores()
        self._started_ns = self._idle_since_ns = now()
        self._last_number: int | None = None
        self._in_work = self._split_wait_ns = self._images = 0

    def planned(self, number: int) -> None:
        """Notes that the worker begins with a batch."""
        with self._lock:
            if not self._in_work and self._last_number is not None and number != self._last_number + 1:
                self._split_wait_ns += self._now() - self._idle_since_ns
            self._last_number = number
            self._in_work += 1

    def failed(self) -> None:
        """Notes that a batch will not be ready."""
        with self._lock:
            self._in_work -= 1

    def finished(self, images: int) -> Account:
        """Notes that a batch is ready. Returns the account."""
        with self._lock:
            self._in_work -= 1
            self._idle_since_ns = self._now()
            self._images += images
            return Account(
                worker=self.worker,
                cores=self._cores,
                up_ns=self._idle_since_ns - self._started_ns,
                cpu_ns=self._cpu(),
                split_wait_ns=self._split_wait_ns,
                images=self._images,
            )
