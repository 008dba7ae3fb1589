"""Trains epochs on a service in a child process while faults are done to the service, and counts what comes."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from unstall.benchmarks.service.faults.plan import MOMENTS, OURS, Case, FaultsAsked
from unstall.benchmarks.service.faults.pool import Pool
from unstall.benchmarks.service.faults.samples import FaultSample
from unstall.pipeline import VARIANTS, ImageSource
from unstall.pipeline.errors import first_line
from unstall.pipeline.service.client import ServiceClient, received
from unstall.pipeline.service.numbered import CHUNK_BATCHES, BatchMaker, numbered_batches
from unstall.pipeline.service.stream import Stream
from unstall.pipeline.service.tf_private import distributed, named_functions
from unstall.profiles import clock

_CONFIG = VARIANTS["tf-data-composed"]
_LOOK_NS = 100_000_000


class FaultSession:
    """Answers the parent; each request is a method."""

    def __init__(self, asked: FaultsAsked, source: ImageSource) -> None:
        self._asked, self._source = asked, source
        self._journal = tempfile.TemporaryDirectory()
        self._maker = BatchMaker(source, _CONFIG)
        self._pool: Pool | None = None

    def run(self, case: Case) -> FaultSample:
        """Trains one epoch with a fault in it, on a service that is whole."""
        if self._pool is None:
            self._pool = Pool(self._source, _CONFIG, Path(tempfile.mkdtemp(dir=self._journal.name)))
        pool = self._pool
        try:
            return _Epoch(case, self._asked, pool).run(
                self._ours(pool) if case.policy == OURS else self._theirs(pool, case.policy), self._maker.batches
            )
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


class _Epoch:
    """One epoch of a case."""

    def __init__(self, case: Case, asked: FaultsAsked, pool: Pool) -> None:
        self._case, self._asked, self._pool = case, asked, pool
        self._timers: list[threading.Timer] = []

    def run(self, source: _Source, batches: int) -> FaultSample:
        deliveries = [0] * batches
        fault_at = int(MOMENTS[self._case.moment] * batches)
        started_ns = last_ns = clock.now_ns()
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
                    clock.sleep_until_ns(now_ns + int(self._asked.step_s * 1e9))
                    last_ns = clock.now_ns()
                elif fault_ns is not None and now_ns - max(fault_ns, last_ns) > self._asked.limit_s * 1e9:
                    longest_ns = now_ns - last_ns
                    end = "waited"
                    break
        except Exception as error:
            end = first_line(error)
        finally:
            wall_ns = clock.now_ns() - started_ns
            source.close()
            for timer in self._timers:
                timer.join()
        return FaultSample(
            case=self._case,
            batches=batches,
            deliveries=tuple(deliveries),
            repaired=source.repaired(),
            dropped=source.dropped(),
            end=end,
            longest_wait_ns=longest_ns,
            wall_ns=wall_ns,
        )

    def _do_fault(self) -> None:
        for seconds, end in self._pool.fault(self._case.kind):
            timer = threading.Timer(seconds, end)
            timer.start()
            self._timers.append(timer)
