"""The client counts: each batch of an epoch once, whatever comes, on streams that the test plants."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from unstall.pipeline import VARIANTS, from_folder
from unstall.pipeline.address import Address
from unstall.pipeline.service import client as module
from unstall.pipeline.service.account import Account
from unstall.pipeline.service.client import Received, ServiceClient
from unstall.pipeline.service.numbered import CHUNK_BATCHES

BATCHES = 10
CONFIG = dataclasses.replace(VARIANTS["tf-data-composed"], batch_size=4, image_size=(8, 8), deterministic=False)
A_SECOND = 1_000_000_000


class PlantedStream:
    """Gives what the test planted; a number stands for nanoseconds in which nothing comes."""

    def __init__(self, came: list[Received | int], time: list[int]) -> None:
        self.came, self.time = came, time
        self.closed = False

    def next(self, *, wait_ns: int) -> Received | None:
        pause_ns = self.came[0] if self.came and isinstance(self.came[0], int) else 0
        if not self.came or wait_ns < pause_ns:
            self.time[0] += wait_ns
            if pause_ns:
                self.came[0] = pause_ns - wait_ns
            return None
        self.time[0] += pause_ns
        came = self.came.pop(0)
        return dataclasses.replace(self.came.pop(0) if pause_ns else came, received_ns=self.time[0])

    def close(self) -> None:
        self.closed = True


def batch(number: int, worker: str = "a:1") -> Received:
    account = Account(worker=worker, cores=2, up_ns=0, cpu_ns=0, split_wait_ns=0, images=0)
    images = np.full((4, 8, 8, 3), number % 256, np.uint8)
    return Received(number=number, batch=(images, np.full(4, number, np.int32)), account=account, received_ns=0)


@pytest.fixture
def client(photos, monkeypatch) -> Any:
    """A client of whose service only the stream is planted; batches that it makes have the label -1."""
    time = [0]
    monkeypatch.setattr(module, "check_reachable", lambda address: None)
    monkeypatch.setattr(module, "ask_workers", lambda target: [SimpleNamespace(worker="a:1")])
    monkeypatch.setattr(module, "check_same", lambda *arguments: None)
    monkeypatch.setattr(module, "now_ns", lambda: time[0])
    made = ServiceClient(Address(host="here", port=1), from_folder(photos), CONFIG, patience_s=3)
    assert made.batches == BATCHES
    monkeypatch.setattr(made, "_make", lambda number: (np.zeros((4, 8, 8, 3), np.uint8), np.full(4, -1, np.int32)))
    made.planted = []
    made.streams = []

    def new_stream(first: int) -> PlantedStream:
        made.streams.append((first, PlantedStream(made.planted, time)))
        return made.streams[-1][1]

    monkeypatch.setattr(made, "_new_stream", new_stream)
    return made


def numbers(epoch: Iterator[Any]) -> list[int]:
    return [number for number, _ in epoch]


def test_an_epoch_has_each_batch_once_in_the_order_in_which_they_come(client):
    client.planted += [batch(number) for number in (1, 0, *range(2, 10))]
    assert numbers(client.numbered_epoch()) == [1, 0, *range(2, 10)]
    assert (client.counts[0].served, client.counts[0].repaired, client.counts[0].twice) == (10, 0, 0)
    assert client.counts[0].exactly_once


def test_batches_of_the_next_epoch_are_kept_for_it(client):
    client.planted += [batch(number) for number in (*range(9), 10, 11, 9, *range(12, 20))]
    assert numbers(client.numbered_epoch()) == [*range(9), 9]
    assert numbers(client.numbered_epoch()) == [0, 1, *range(2, 10)]
    assert [first for first, _ in client.streams] == [0]  # one job for both epochs


def test_a_batch_that_comes_twice_is_dropped_and_counted(client):
    client.planted += [batch(number) for number in (0, 0, *range(1, 10))]
    assert numbers(client.numbered_epoch()) == list(range(10))
    assert client.counts[0].twice == 1


def test_a_batch_is_made_here_once_every_worker_is_beyond_it(client):
    """Batch 3 is lost with its worker; the others go on with later chunks, so that nobody waits for it."""
    later = 3 + CHUNK_BATCHES
    came = [number for number in range(10) if number != 3]
    client.planted += [batch(number) for number in (*came, *range(10, later + 1))]
    assert numbers(client.numbered_epoch()) == [*came, 3]
    counts = client.counts[0]
    assert (counts.served, counts.repaired, counts.waited_ns) == (9, 1, 0)


def test_a_worker_that_is_slow_is_waited_for(client):
    """Worker b has sent nothing beyond batch 3 but has sent a batch a moment ago: it may still send batch 3."""
    rest = [batch(number) for number in range(10) if number not in (2, 3)]
    later = [batch(number) for number in range(10, 30)]
    client.planted += [batch(2, "b:1"), *rest, *later, A_SECOND, batch(3, "b:1")]
    assert numbers(client.numbered_epoch())[-1] == 3
    assert client.counts[0].repaired == 0


def test_so_is_one_that_has_sent_nothing_yet(client):
    """Worker b was given the first chunk, and a has sent all of the second before b begins."""
    client.workers.append(SimpleNamespace(worker="b:1"))
    later = [batch(number) for number in range(CHUNK_BATCHES, 2 * CHUNK_BATCHES)]
    client.planted += [*later, A_SECOND, *(batch(number, "b:1") for number in range(CHUNK_BATCHES))]
    assert sorted(numbers(client.numbered_epoch())) == list(range(BATCHES))
    assert (client.counts[0].repaired, client.counts[0].twice) == (0, 0)


def test_but_no_longer_than_its_patience(client):
    rest = [batch(number) for number in range(10) if number not in (2, 3)]
    client.planted += [batch(2, "b:1"), *rest, 4 * A_SECOND, batch(3, "b:1"), *(batch(n) for n in range(10, 20))]
    assert numbers(client.numbered_epoch())[-1] == 3
    assert client.counts[0].repaired == 1
    assert client.counts[0].waited_ns == 3 * A_SECOND
    assert numbers(client.numbered_epoch()) == list(range(10))
    assert client.counts[1].twice == 1  # batch 3, when it came


def test_without_any_worker_the_client_makes_all_batches(client):
    labels = [part[1][0] for _, part in client.numbered_epoch()]
    assert labels == [-1] * BATCHES
    assert client.counts[0].repaired == BATCHES
    assert client.counts[0].waited_ns == 3 * A_SECOND  # once, and not for every batch


def test_an_epoch_that_is_broken_off_ends_its_job(client):
    client.planted += [batch(number) for number in range(40)]
    epoch = client.numbered_epoch()
    next(epoch)
    second = client.numbered_epoch()
    next(second)
    assert client.streams[0][1].closed
    assert [first for first, _ in client.streams] == [0, BATCHES]
    with pytest.raises(RuntimeError, match="Another epoch was begun before this one had ended"):
        next(epoch)
    epoch.close()
    assert not client.streams[1][1].closed


@pytest.fixture
def in_order(client) -> Any:
    client._in_order = True
    return client


def test_batches_come_in_the_order_of_the_epoch(in_order):
    in_order.planted += [batch(number) for number in (1, 0, 10, 3, 2, *range(4, 10))]
    assert numbers(in_order.numbered_epoch()) == list(range(10))


def test_the_first_batch_that_is_missing_is_not_waited_for_until_the_end_of_the_epoch(in_order, monkeypatch):
    """Worker b is lost with batch 1 of a long epoch, and worker a goes on, a batch every second."""
    monkeypatch.setattr(type(in_order), "batches", 100)
    came = [batch(0), *(part for number in range(2, 100) for part in (A_SECOND, batch(number)))]
    in_order.planted += came
    epoch = in_order.numbered_epoch()
    assert [next(epoch)[0] for _ in range(4)] == [0, 1, 2, 3]
    assert in_order.counts[0].repaired == 1
    assert in_order.counts[0].waited_ns <= 5 * A_SECOND


def test_a_job_that_fails_is_begun_again_where_it_failed(in_order):
    failed = tf.errors.NotFoundError(None, None, "the job is gone")
    in_order.planted += [batch(number) for number in range(4)]
    epoch = in_order.numbered_epoch()
    served = [next(epoch)[0] for _ in range(4)]
    stream = in_order.streams[0][1]
    errors = [failed]  # a stream gives its error once, and then nothing

    def next_of_failed(*, wait_ns: int) -> Any:
        if errors:
            raise errors.pop()
        stream.time[0] += wait_ns

    stream.next = next_of_failed
    in_order.planted += [batch(number) for number in range(4, 10)]
    served += numbers(epoch)
    assert served == list(range(10))
    assert [first for first, _ in in_order.streams] == [0, 5]
    assert in_order.counts[0].repaired == 1  # in the time of patience


def test_waiting_at_the_end_of_an_epoch_is_counted_apart(client):
    rest = [batch(number) for number in range(9)]
    client.planted += [A_SECOND, *rest, batch(10), A_SECOND, batch(9)]  # only one is missing
    assert len(numbers(client.numbered_epoch())) == BATCHES
    assert (client.counts[0].waited_ns, client.counts[0].end_wait_ns) == (2 * A_SECOND, A_SECOND)
