"""Simulates a training batch by batch: workers, links, trainers and devices that wait for each other.

A simulation of discrete events: each event is the end of a piece of work, and the events are taken in the order of
their times. A worker makes one batch after the other, and stops when some of its batches have not been sent. A link
carries one batch at a time. A trainer receives one batch at a time, and stops when its buffer is full. All devices
begin a step together, when every host has a batch for each of its devices.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

# Batches that a worker makes ahead of the link, and those that lie ready on a trainer for each device.
_AHEAD, _BUFFER = 2, 4
# The time to make a batch differs from batch to batch by so much: the deviation over the mean.
# Source: the spread of a worker's batches of 32 photos in our own runs.
_SPREAD_RATIO = 0.1
_WARM_STEPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedHost:
    """A trainer's host with its workers. All times are of one batch.

    Attributes:
      devices: that train here.
      worker_s: of each worker, to make and send a batch.
      link_s: on the trainer's link.
      trainer_s: of the trainer, to receive a batch and to do what is behind the cut.
    """

    devices: int
    worker_s: tuple[float, ...]
    link_s: float
    trainer_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The result of a simulation.

    Attributes:
      steps_per_sec: of all devices together, without the first steps.
      device_ratio: how far the devices were used.
    """

    steps_per_sec: float
    device_ratio: float


class _Clock:
    """The events to come, and the time of the last that was taken."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def after(self, wait_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_s + wait_s, next(self._numbers), event))

    def take(self) -> None:
        self.now_s, _, event = heapq.heappop(self._events)
        event()


class _Host:
    def __init__(self, host: SimulatedHost, clock: _Clock, storage: _Storage, draw: random.Random) -> None:
        self._host, self._clock, self._storage, self._draw = host, clock, storage, draw
        self._unsent = [0] * len(host.worker_s)
        self._stopped: set[int] = set()
        self._to_send: deque[int] = deque()
        self._sends = self._receives = False
        self._to_receive = 0
        self.ready = 0
        self.on_ready: Callable[[], None] = lambda: None
        for worker in range(len(host.worker_s)):
            self._make(worker)

    @property
    def has_step(self) -> bool:
        return self.ready >= self._host.devices

    def take_step(self) -> None:
        self.ready -= self._host.devices
        self._receive()

    def _make(self, worker: int) -> None:
        spread = max(0.0, self._draw.gauss(1.0, _SPREAD_RATIO))
        self._storage.read(lambda: self._clock.after(self._host.worker_s[worker] * spread, lambda: self._made(worker)))

    def _made(self, worker: int) -> None:
        self._unsent[worker] += 1
        self._to_send.append(worker)
        self._send()
        if self._unsent[worker] < _AHEAD:
            self._make(worker)
        else:
            self._stopped.add(worker)

    def _send(self) -> None:
        if self._sends or not self._to_send or self._to_receive > self._host.devices:
            return
        self._sends = True
        worker = self._to_send.popleft()
        self._clock.after(self._host.link_s, lambda: self._sent(worker))

    def _sent(self, worker: int) -> None:
        self._sends = False
        self._to_receive += 1
        self._unsent[worker] -= 1
        if worker in self._stopped:
            self._stopped.discard(worker)
            self._make(worker)
        self._receive()
        self._send()

    def _receive(self) -> None:
        if self._receives or not self._to_receive or self.ready >= _BUFFER * self._host.devices:
            return
        self._receives = True
        self._clock.after(self._host.trainer_s, self._received)

    def _received(self) -> None:
        self._receives = False
        self._to_receive -= 1
        self.ready += 1
        self.on_ready()
        self._receive()
        self._send()


class _Storage:
    """Reads the files of one batch after the other, for all workers of all hosts."""

    def __init__(self, clock: _Clock, batch_s: float) -> None:
        self._clock, self._batch_s, self._free_s = clock, batch_s, 0.0

    def read(self, then: Callable[[], None]) -> None:
        self._free_s = max(self._free_s, self._clock.now_s) + self._batch_s
        self._clock.after(self._free_s - self._clock.now_s, then)


def simulate(
    hosts: tuple[SimulatedHost, ...], *, step_s: float, hand_over_s: float, steps: int, storage_s: float = 0.0
) -> Simulated:
    """Simulates so many steps of all devices, after some that are not counted.

    Args:
      hosts: with at least one worker each.
      step_s: that a device computes.
      hand_over_s: that a device waits for a batch that is ready.
      storage_s: that the storage takes for the files of a batch; 0 where it is no limit.
    """
    clock, draw = _Clock(), random.Random(0)
    storage = _Storage(clock, storage_s)
    running = [_Host(host, clock, storage, draw) for host in hosts]
    done, begun_s, computes = 0, 0.0, False

    def begin_step() -> None:
        nonlocal computes
        if computes or not all(host.has_step for host in running):
            return
        computes = True
        for host in running:
            host.take_step()
        clock.after(step_s + hand_over_s, end_step)

    def end_step() -> None:
        nonlocal computes, done, begun_s
        computes = False
        done += 1
        if done == _WARM_STEPS:
            begun_s = clock.now_s
        begin_step()

    for host in running:
        host.on_ready = begin_step
    while done < _WARM_STEPS + steps:
        clock.take()
    steps_per_sec = steps / (clock.now_s - begun_s)
    return Simulated(steps_per_sec=steps_per_sec, device_ratio=steps_per_sec * step_s)
