"""Trains epochs on a service in a child process while faults are done to the service, and counts what comes."""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from tests.faults.service_pool import KINDS, Pool
from unstall.pipeline import VARIANTS, ImageSource
from unstall.pipeline.errors import first_line
from unstall.pipeline.service.client import ServiceClient, received
from unstall.pipeline.service.numbered import CHUNK_BATCHES, BatchMaker, numbered_batches
from unstall.pipeline.service.stream import Stream
from unstall.pipeline.service.tf_private import distributed, named_functions
from unstall.profiles import clock

# Who promises what.
OURS = "exactly once"
POLICIES: dict[str, str] = {
    "off": "tf.data service alone: each worker makes all batches",
    "dynamic": "tf.data service alone: each batch goes to one worker",
    OURS: "our client over dynamic sharding: it makes missing batches itself",
}
# The share of an epoch's batches that the trainer has when the fault comes.
MOMENTS: dict[str, float] = {"first": 0.0, "middle": 0.5, "end": 0.9}
# How long the trainer takes for a batch, and how long a policy is given after the fault; then the client is ended from
# outside.
_STEP_S, LIMIT_S = 0.02, 15.0
# Our client may keep the trainer waiting for its patience and for making some batches itself, no longer.
LONGEST_WAIT_S = 8.0
_CONFIG = VARIANTS["tf-data-composed"]
_LOOK_NS = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fault: its kind, under a policy, at a moment of an epoch."""

    kind: str
    policy: str
    moment: str

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.policy}/{self.moment}"


CASES = tuple(
    Case(kind=kind, policy=policy, moment=moment)
    for kind, policy, moment in itertools.product(KINDS, POLICIES, MOMENTS)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One epoch with a fault.

    Attributes:
      policy: the case's.
      deliveries: how often the trainer got each batch, by the batch's number.
      repaired: how many the client made itself.
      dropped: how many came once more, and were dropped by the client.
      end: "complete" if the epoch ended by itself; "waited" if it was ended from outside; else the error's first line.
      longest_wait_s: the longest time that the trainer waited for a batch after the fault.
    """

    policy: str
    deliveries: tuple[int, ...]
    repaired: int
    dropped: int
    end: str
    longest_wait_s: float

    @property
    def once(self) -> int:
        return sum(count == 1 for count in self.deliveries)

    @property
    def more(self) -> int:
        return sum(count > 1 for count in self.deliveries)

    @property
    def never(self) -> int:
        return sum(count == 0 for count in self.deliveries)

    @property
    def broken(self) -> bool:
        """Whether our client broke its promise: each batch once, and no long wait."""
        kept = self.once == len(self.deliveries) and self.end == "complete" and self.longest_wait_s <= LONGEST_WAIT_S
        return self.policy == OURS and not kept

    def __str__(self) -> str:
        return (
            f"once {self.once}, more {self.more}, never {self.never}, made here {self.repaired}, "
            f"dropped {self.dropped}, longest wait {self.longest_wait_s:.1f} s, {self.end}"
        )


class FaultSession:
    """Answers the parent; each request is a method."""

    def __init__(self, source: ImageSource) -> None:
        self._source = source
        self._journal = tempfile.TemporaryDirectory()
        self._maker = BatchMaker(source, _CONFIG)
        self._pool: Pool | None = None

    def run(self, case: Case) -> Epoch:
        """Trains one epoch with a fault in it, on a service that is whole."""
        if self._pool is None:
            self._pool = Pool(self._source, _CONFIG, Path(tempfile.mkdtemp(dir=self._journal.name)))
        pool = self._pool
        try:
            source = self._ours(pool) if case.policy == OURS else self._theirs(pool, case.policy)
            return _Trainer(case, pool).run(source, self._maker.batches)
        finally:
            if not pool.heal():
                pool.close()
                self._pool = None

    def _ours(self, pool: Pool) -> _Source:
        client = ServiceClient(pool.address, self._source, _CONFIG)

        def numbers() -> Iterator[int | None]:
            for number, _ in client.numbered_epoch():
                yield number

        return _Source(
            numbers=numbers(),
            close=client.close,
            repaired=lambda: client.counts[-1].repaired,
            dropped=lambda: client.counts[-1].twice,
        )

    def _theirs(self, pool: Pool, sharding: str) -> _Source:
        with named_functions():
            dataset = numbered_batches(_one_epoch(self._maker.batches), self._maker)
        stream = Stream(lambda: distributed(dataset, pool.address.target, sharding=sharding), received)

        def numbers() -> Iterator[int | None]:
            while True:
                try:
                    came = stream.next(wait_ns=_LOOK_NS)
                except tf.errors.OutOfRangeError:
                    return
                yield None if came is None else came.number

        return _Source(numbers=numbers(), close=stream.close, repaired=lambda: 0, dropped=lambda: 0)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        self._journal.cleanup()


def _one_epoch(batches: int) -> tf.data.Dataset:
    """Yields the numbers of one epoch; an element of its source is a chunk of them."""
    return tf.data.Dataset.range(-(-batches // CHUNK_BATCHES)).flat_map(
        lambda chunk: tf.data.Dataset.range(
            chunk * CHUNK_BATCHES, tf.minimum((chunk + 1) * CHUNK_BATCHES, tf.constant(batches, tf.int64))
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Where the trainer's batches come from: their numbers, None while none has come yet."""

    numbers: Iterator[int | None]
    close: Callable[[], None]
    repaired: Callable[[], int]
    dropped: Callable[[], int]


class _Trainer:
    """Takes the batches of one epoch, and has the fault of a case done meanwhile."""

    def __init__(self, case: Case, pool: Pool) -> None:
        self._case, self._pool = case, pool
        self._timers: list[threading.Timer] = []

    def run(self, source: _Source, batches: int) -> Epoch:
        deliveries = [0] * batches
        fault_at = int(MOMENTS[self._case.moment] * batches)
        last_ns = clock.now_ns()
        fault_ns: int | None = None
        longest_ns, end = 0, "complete"
        try:
            while True:
                if fault_ns is None and sum(deliveries) >= fault_at:
                    fault_ns = last_ns = clock.now_ns()
                    self._do_fault()
                number = next(source.numbers, -1)
                now_ns = clock.now_ns()
                if fault_ns is not None and number is not None:
                    longest_ns = max(longest_ns, now_ns - last_ns)
                if number == -1:
                    break
                if number is not None:
                    deliveries[number] += 1
                    clock.sleep_until_ns(now_ns + int(_STEP_S * 1e9))
                    last_ns = clock.now_ns()
                elif fault_ns is not None and now_ns - max(fault_ns, last_ns) > LIMIT_S * 1e9:
                    longest_ns = now_ns - last_ns
                    end = "waited"
                    break
        except Exception as error:
            end = first_line(error)
        finally:
            source.close()
            for timer in self._timers:
                timer.join()
        return Epoch(
            policy=self._case.policy,
            deliveries=tuple(deliveries),
            repaired=source.repaired(),
            dropped=source.dropped(),
            end=end,
            longest_wait_s=longest_ns / 1e9,
        )

    def _do_fault(self) -> None:
        for seconds, end in self._pool.fault(self._case.kind):
            timer = threading.Timer(seconds, end)
            timer.start()
            self._timers.append(timer)
