"""The client of a service: gives each batch of each epoch to `fit` exactly once, whatever happens to the workers.

The service itself promises at most once: a worker that is lost takes its batches with it. The client knows by their
numbers which are missing, and makes those itself.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from unstall.pipeline.address import Address
from unstall.pipeline.clock import now_ns
from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.service.account import Account, read_account
from unstall.pipeline.service.handshake import ask_workers, check_reachable, check_same
from unstall.pipeline.service.numbered import CHUNK_BATCHES, BatchMaker, chunks, numbered_batches
from unstall.pipeline.service.stream import Stream
from unstall.pipeline.service.tf_private import distributed, named_functions
from unstall.pipeline.sources.source import ImageSource

# A worker that has sent nothing for so long no longer counts as one that may still have a missing batch. And if nothing
# comes at all for so long, the client makes batches itself. A batch takes some hundredths of a second.
_PATIENCE_S = 3.0
# Batches that are kept while one before them is missing: at most so many bytes.
_KEPT_BYTES = 1 << 28

_BEGUN = "Another epoch was begun before this one had ended, or the client was closed."

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
      served: how many came from workers.
      repaired: how many the client made itself, because no worker sent them.
      twice: how many came once more, and were dropped.
      waited_ns: time in which `fit` waited for the service.
      end_wait_ns: of this, the time at the epoch's end: batches of the next had come, and at most a chunk was missing.
    """

    epoch: int
    batches: int
    served: int = 0
    repaired: int = 0
    twice: int = 0
    waited_ns: int = 0
    end_wait_ns: int = 0

    @property
    def exactly_once(self) -> bool:
        return self.served + self.repaired == self.batches


class ServiceClient:
    """Serves the epochs of a pipeline that a service's workers run.

    Each call of `epoch` begins the next epoch; one that is broken off is not gone on with.

    Attributes:
      workers: the facts of the workers at the beginning.
      maker: says what each batch holds.
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
        self.maker = BatchMaker(source, config)
        self._most_kept = max(CHUNK_BATCHES, _KEPT_BYTES // (config.batch_size * int(np.prod(config.image_size)) * 3))
        self._in_order = config.deterministic or not config.shuffle_buffer
        self._epoch = -1
        self._job: _Job | None = None
        self._end_job: Callable[[], object] = lambda: None
        self.counts: list[Counts] = []
        self.accounts: deque[tuple[int, Account]] = deque(maxlen=100_000)
        self.workers = ask_workers(address.target)
        if not self.workers:
            raise UnavailableError(
                f"the dispatcher at {address.text} has no workers: start one with `unstall service worker "
                f"--dispatcher {address.text}`"
            )
        with named_functions() as functions:
            numbered_batches(chunks(0), self.maker)
        check_same(self.workers, functions, address.text, self.maker.parts)

    @property
    def batches(self) -> int:
        """How many batches an epoch has."""
        return self.maker.batches

    def epoch(self) -> Iterator[Batch]:
        """Yields the batches of the next epoch: uint8 images and int32 labels.

        They come in the order of the epoch, or, where the config is not deterministic, as they come from the workers.

        Raises:
          UnavailableError: if a worker cannot run the pipeline.
          RuntimeError: if another epoch was begun before this one had ended.
        """
        for _, batch in self.numbered_epoch():
            yield batch

    def counted_epoch(self) -> Iterator[tuple[int, Any, Any]]:
        """Yields what `epoch` yields, each batch after its number, which goes on from epoch to epoch."""
        first = (self._epoch + 1) * self.batches
        for number, (served, labels) in self.numbered_epoch():
            yield first + number, served, labels

    def numbered_epoch(self) -> Iterator[tuple[int, Batch]]:
        """Yields what `epoch` yields, each batch with its number in the epoch."""
        self._epoch += 1
        epoch, first = self._epoch, self._epoch * self.batches
        counts = Counts(epoch=epoch, batches=self.batches)
        self.counts.append(counts)
        if self._job is not None and self._job.next_epoch != epoch:
            self.close()  # an epoch that was broken off: what is left of it will not be used
        job = self._job or self._begin_job(first)
        for number, batch in self._rest(job, set(range(first, first + self.batches)), counts):
            yield number - first, batch
            if self._epoch != epoch:
                raise RuntimeError(_BEGUN)
        job.next_epoch = epoch + 1

    def _begin_job(self, first: int) -> _Job:
        """Begins to read batches from number `first` on."""
        workers = [facts.worker for facts in self.workers]
        self._job = job = _Job(stream=self._new_stream(first), workers=workers)
        self._end_job = weakref.finalize(self, job.close)
        return job

    def _new_stream(self, first: int) -> Stream[Received]:
        maker, target = self.maker, self._address.target

        def make_dataset() -> tf.data.Dataset:
            with named_functions():
                return distributed(numbered_batches(chunks(first), maker), target, sharding="dynamic")

        return Stream(make_dataset, received)

    def _rest(self, job: _Job, wanted: set[int], counts: Counts) -> Iterator[tuple[int, Batch]]:
        """Yields the batches of `wanted` with their numbers, and takes each out when it is there."""
        ready: dict[int, Batch] = {}
        expected, asked_ns, silent = min(wanted), now_ns(), False
        for early in job.take_early():
            self._sort(early, job, wanted, ready, counts)
        while wanted or ready:
            number = expected if self._in_order else next(iter(ready), expected)
            if number in ready:
                expected += 1
                yield number, ready.pop(number)
                asked_ns = now_ns()
                continue
            left_ns = asked_ns + self._patience_ns - now_ns()
            if silent or self._is_lost(job, wanted, ready):
                left_ns = 0
            came = self._wait(job, max(0, left_ns), wanted, counts)
            if self._job is not job:
                raise RuntimeError(_BEGUN)
            if came is not None:
                silent = False
                self._sort(came, job, wanted, ready, counts)
            elif now_ns() - asked_ns >= self._patience_ns or left_ns <= 0:
                silent = True  # where nothing comes, only the first batch is waited for
                number = min(wanted)
                ready[number] = self._make(number)
                wanted.discard(number)
                counts.repaired += 1

    def _wait(self, job: _Job, wait_ns: int, wanted: set[int], counts: Counts) -> Received | None:
        """Waits for the next batch of a job. A job that fails is begun anew, at most once in the time of patience.

        Raises:
          UnavailableError: if a worker cannot run the pipeline.
        """
        ended = bool(job.early) and len(wanted) <= CHUNK_BATCHES
        if job.failed and now_ns() - job.begun_ns >= self._patience_ns:
            job.begin_again(self._new_stream(min(wanted)))
        asked_ns = now_ns()
        try:
            return job.next(wait_ns)
        except tf.errors.OpError:
            job.failed = True
            return None
        finally:
            waited_ns = now_ns() - asked_ns
            counts.waited_ns += waited_ns
            if ended:
                counts.end_wait_ns += waited_ns

    def _sort(self, came: Received, job: _Job, wanted: set[int], ready: dict[int, Batch], counts: Counts) -> None:
        """Keeps a batch of this epoch, or of a later one; drops one that has been there."""
        self.accounts.append((came.received_ns, came.account))
        if came.number in wanted:
            wanted.discard(came.number)
            ready[came.number] = came.batch
            counts.served += 1
        elif came.number >= (counts.epoch + 1) * self.batches:
            job.early.append(came)
        else:
            counts.twice += 1

    def _is_lost(self, job: _Job, wanted: set[int], ready: dict[int, Batch]) -> bool:
        """Whether no worker is left that may still send the batch that is waited for, or too many are kept for it."""
        if len(job.early) + len(ready) >= self._most_kept:
            return True
        return job.all_beyond(min(wanted) if self._in_order else max(wanted), self._patience_ns)

    def _make(self, number: int) -> Batch:
        """Makes a batch in this process, as a worker does."""
        if self.maker.config.composed:
            images, labels, _ = self.maker.make(np.int64(number))
            return images, labels
        with tf.device("/CPU:0"):
            dataset = numbered_batches(tf.data.Dataset.from_tensors(np.int64(number)), self.maker)
            _, served, classes, _ = next(iter(dataset))
        return served.numpy(), classes.numpy()

    def close(self) -> None:
        """Ends the job. The next epoch begins another."""
        self._end_job()
        self._job = None


@dataclass(slots=True, kw_only=True)
class _Job:
    """A job of the service, which goes on from epoch to epoch.

    Attributes:
      stream: of its batches.
      workers: names of those that may have been given a chunk before they have sent anything.
      begun_ns: when the stream was begun.
      failed: whether the stream has ended with an error, and gives nothing more.
      next_epoch: the epoch that may begin without a new job; -1 while an epoch is being served.
      early: batches of a later epoch than the one that is being served.
      newest: the number and the time of the newest batch of each worker; number -1 for one that has sent nothing.
    """

    stream: Stream[Received]
    workers: list[str]
    begun_ns: int = field(init=False)
    failed: bool = False
    next_epoch: int = -1
    early: list[Received] = field(default_factory=list)
    newest: dict[str, tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.begun_ns = now_ns()
        self.newest = dict.fromkeys(self.workers, (-1, self.begun_ns))

    def next(self, wait_ns: int) -> Received | None:
        came = self.stream.next(wait_ns=wait_ns)
        if came is not None:
            self.newest[came.account.worker] = (came.number, came.received_ns)
        return came

    def take_early(self) -> list[Received]:
        early, self.early = self.early, []
        return early

    def all_beyond(self, number: int, patience_ns: int) -> bool:
        """Whether each worker that may still send something has sent a batch of a later chunk than that of `number`.

        A worker makes the chunks that it gets one after the other, so that none of these still has the batch. One that
        has sent nothing may be slow to begin with its first; one that has sent nothing for long is not waited for.
        """
        now = now_ns()
        lately = [newest for newest, at_ns in self.newest.values() if now - at_ns < patience_ns]
        return bool(lately) and min(lately) >= number + CHUNK_BATCHES

    def begin_again(self, stream: Stream[Received]) -> None:
        self.stream.close()
        self.stream, self.failed = stream, False
        self._begin()

    def close(self) -> None:
        self.stream.close()


def received(number: Any, images: Any, labels: Any, account: Any) -> Received:
    """Makes of an element of `numbered_batches` a batch in NumPy."""
    return Received(
        number=int(number),
        batch=(images.numpy(), labels.numpy()),
        account=read_account(account.numpy()),
        received_ns=now_ns(),
    )
