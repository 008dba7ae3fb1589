"""The client of a service: gives each batch of each epoch to `fit` exactly once, whatever happens to the workers.

The service itself promises at most once: a worker that is lost takes its batches with it. The client knows by their
numbers which are missing, and makes those itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from pipeline.address import Address
from pipeline.clock import now_ns
from pipeline.config import PipelineConfig
from pipeline.errors import UnavailableError
from pipeline.service.account import Account, read_account
from pipeline.service.handshake import ask_workers, check_reachable, check_same
from pipeline.service.numbered import CHUNK_BATCHES, BatchMaker, chunks, numbered_batches
from pipeline.service.stream import Stream
from pipeline.service.tf_private import distributed, named_functions
from pipeline.sources.source import ImageSource

# A worker that has sent nothing for so long no longer counts as one that may still have a missing batch. And if nothing
# comes at all for so long, the client makes batches itself. A batch takes some hundredths of a second.
_PATIENCE_S = 3.0
# Batches that are kept while one before them is missing: at most so many bytes.
_EARLY_BYTES = 1 << 28

Batch = tuple[NDArray[np.uint8], NDArray[np.int32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A batch as it came from a worker.

    Attributes:
      number: of the batch, counted over all epochs.
      received_ns: when it came.
    """

    number: int
    batch: Batch
    account: Account
    received_ns: int


@dataclass(slots=True, kw_only=True)
class Counts:
    """What became of the batches of one epoch.

    Attributes:
      batches: how many the epoch has.
      served: how many came from workers, and were given on.
      repaired: how many the client made itself, because no worker sent them.
      twice: how many came once more, and were dropped.
      waited_ns: time in which `fit` waited for the service.
      end_wait_ns: of this, the time at the epoch's end, when other batches had come but not the missing ones.
      repair_ns: time that the client took to make batches itself.
      began_ns, ended_ns: when the first batch was asked for, and when the last one was given on.
    """

    epoch: int
    batches: int
    served: int = 0
    repaired: int = 0
    twice: int = 0
    waited_ns: int = 0
    end_wait_ns: int = 0
    repair_ns: int = 0
    began_ns: int = 0
    ended_ns: int = 0

    @property
    def exactly_once(self) -> bool:
        return self.served + self.repaired == self.batches


class ServiceClient:
    """Serves the epochs of a pipeline that a service's workers run.

    Each call of `epoch` begins the next epoch; one that is broken off is not gone on with.

    Attributes:
      workers: the facts of the workers at the beginning.
      counts: of each epoch that was begun.
      accounts: the accounts that came, newest last: (time in nanoseconds, account).

    Args:
      patience_s: how long a batch may be missing before the client makes it itself.
    Raises:
      UnavailableError: if no dispatcher or no worker answers, or a worker serves another pipeline.
    """

    def __init__(
        self,
        address: Address,
        source: ImageSource,
        config: PipelineConfig,
        *,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        check_reachable(address)
        self._address = address
        self._patience_ns = int(patience_s * 1e9)
        self._maker = BatchMaker(source, config)
        self._early_batches = max(
            CHUNK_BATCHES, _EARLY_BYTES // (config.batch_size * int(np.prod(config.image_size)) * 3)
        )
        self._epoch = -1
        self._stream: Stream[Received] | None = None
        self._early: list[Received] = []
        # Batches of this epoch before which another must come.
        self._held: dict[int, Batch] = {}
        # The number and the time of the newest batch of each worker.
        self._newest: dict[str, tuple[int, int]] = {}
        self.counts: list[Counts] = []
        self.accounts: deque[tuple[int, Account]] = deque(maxlen=100_000)
        self.workers = ask_workers(address.target)
        if not self.workers:
            raise UnavailableError(
                f"the dispatcher at {address.text} has no workers: start one with `unstall service worker "
                f"--dispatcher {address.text}`"
            )
        check_same(self.workers, self._function_names(), address.text)

    @property
    def batches(self) -> int:
        """How many batches an epoch has."""
        return self._maker.batches

    def _function_names(self) -> list[str]:
        with named_functions() as functions:
            numbered_batches(chunks(0), self._maker)
        return functions

    def epoch(self) -> Iterator[Batch]:
        """Yields the batches of the next epoch: uint8 images and int32 labels.

        They come in the order of the epoch, or, where the config is not deterministic, as they come from the workers.

        Raises:
          UnavailableError: if a worker cannot run the pipeline.
        """
        for _, batch in self.numbered_epoch():
            yield batch

    def numbered_epoch(self) -> Iterator[tuple[int, Batch]]:
        """Yields what `epoch` yields, each batch with its number in the epoch."""
        self._epoch += 1
        first = self._epoch * self.batches
        counts = Counts(epoch=self._epoch, batches=self.batches, began_ns=now_ns())
        self.counts.append(counts)
        if self._stream is None:
            self._stream = self._new_stream(first)
        wanted = set(range(first, first + self.batches))
        batches = self._rest(self._stream, wanted, counts)
        config = self._maker.config
        if config.deterministic or not config.shuffle_buffer:
            batches = self._in_order(batches, first)
        try:
            for number, batch in batches:
                yield number - first, batch
        finally:
            counts.ended_ns = now_ns()
            if wanted:  # broken off: what is left of the epoch will not be used
                self.close()

    def _in_order(self, batches: Iterator[tuple[int, Batch]], first: int) -> Iterator[tuple[int, Batch]]:
        """Yields the batches in the order of their numbers. Holds those of fast workers meanwhile."""
        expected = first
        for number, batch in batches:
            self._held[number] = batch
            while expected in self._held:
                yield expected, self._held.pop(expected)
                expected += 1

    def _new_stream(self, first: int) -> Stream[Received]:
        with named_functions():
            dataset = numbered_batches(chunks(first), self._maker)
            dataset = distributed(dataset, self._address.target, sharding="dynamic")
        self._early.clear()
        self._held.clear()
        self._newest.clear()
        return Stream(dataset, received)

    def _rest(self, stream: Stream[Received], wanted: set[int], counts: Counts) -> Iterator[tuple[int, Batch]]:
        """Yields the batches of `wanted` with their numbers, and takes each out when it is given on."""
        early, self._early = self._early, []
        for ready in early:
            self._sort(ready, wanted, counts)
            if ready.number in wanted:
                yield self._served(ready, wanted, counts)
        patient = True
        while wanted:
            asked_ns = now_ns()
            came = stream.next(wait_ns=self._patience_ns if patient and not self._is_lost(max(wanted)) else 0)
            patient = came is not None  # where nothing comes, only the first batch is waited for
            waited_ns = now_ns() - asked_ns
            counts.waited_ns += waited_ns
            if self._early:
                counts.end_wait_ns += waited_ns
            if came is not None:
                self._newest[came.account.worker] = (came.number, came.received_ns)
                self.accounts.append((came.received_ns, came.account))
                self._sort(came, wanted, counts)
                if came.number in wanted:
                    yield self._served(came, wanted, counts)
                continue
            number = min(wanted)
            asked_ns = now_ns()
            batch = self._make(number)
            counts.repair_ns += now_ns() - asked_ns
            wanted.discard(number)
            counts.repaired += 1
            yield number, batch

    def _sort(self, came: Received, wanted: set[int], counts: Counts) -> None:
        """Keeps a batch of a later epoch, and counts one that is not wanted any more."""
        if came.number >= (counts.epoch + 1) * self.batches:
            self._early.append(came)
        elif came.number not in wanted:
            counts.twice += 1

    @staticmethod
    def _served(came: Received, wanted: set[int], counts: Counts) -> tuple[int, Batch]:
        wanted.discard(came.number)
        counts.served += 1
        return came.number, came.batch

    def _is_lost(self, number: int) -> bool:
        """Whether no worker is left that may still send the last missing batch.

        A worker makes the chunks that it gets one after the other. So it has none of the missing batches any more when
        it has sent one of a later chunk. A worker that has sent nothing lately is not waited for.
        """
        if len(self._early) + len(self._held) >= self._early_batches:
            return True
        now = now_ns()
        lately = [newest for newest, at_ns in self._newest.values() if now - at_ns < self._patience_ns]
        return bool(lately) and min(lately) >= number + CHUNK_BATCHES

    def _make(self, number: int) -> Batch:
        """Makes a batch in this process, as a worker does."""
        if self._maker.config.composed:
            images, labels, _ = self._maker.make(np.int64(number))
            return images, labels
        with tf.device("/CPU:0"):
            dataset = numbered_batches(tf.data.Dataset.from_tensors(np.int64(number)), self._maker)
            _, served, classes, _ = next(iter(dataset))
        return served.numpy(), classes.numpy()

    def close(self) -> None:
        """Ends the job. The next epoch begins another."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def received(number: Any, images: Any, labels: Any, account: Any) -> Received:
    """Makes of an element of `numbered_batches` a batch in NumPy."""
    return Received(
        number=int(number),
        batch=(images.numpy(), labels.numpy()),
        account=read_account(account.numpy()),
        received_ns=now_ns(),
    )
