"""When a device that computes behind the host has finished its steps, with exact numbers."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from unstall.profiles.measure.completion import Completion


class Device:
    """Finishes each step when the test says so."""

    def __init__(self, steps: int) -> None:
        self.finished = [threading.Event() for _ in range(steps)]

    def wait(self, number: int) -> None:
        assert self.finished[number].wait(10)

    def is_ready(self, number: int) -> bool:
        return self.finished[number].is_set()


@pytest.fixture
def device() -> Device:
    return Device(3)


def test_each_step_is_noted_once_and_in_its_order(device: Device, fake_clock: Any) -> None:
    completion = Completion(device.wait, device.is_ready)
    for number in range(3):
        completion.add(number)
    assert list(completion.take()) == []
    moments = []
    for number in range(3):
        fake_clock.sleep(1)
        device.finished[number].set()
        while not (done_ns := completion.take()):
            threading.Event().wait(0.001)
        moments += done_ns
    assert [moment - moments[0] for moment in moments] == [0, 10**9, 2 * 10**9]
    assert list(completion.take_all()) == []


def test_the_host_notes_a_step_that_its_thread_has_not_noted_yet(device: Device, fake_clock: Any) -> None:
    blocked = threading.Event()
    completion = Completion(lambda number: blocked.wait(10), device.is_ready)
    completion.add(0)
    completion.look(5)
    assert list(completion.take()) == []
    device.finished[0].set()
    completion.look(7)
    assert list(completion.take()) == [7]
    completion.look(9)
    blocked.set()
    completion.add(1)
    assert len(completion.take_all()) == 1


def test_a_step_that_fails_is_noted_as_well() -> None:
    def fails(result: Any) -> None:
        raise RuntimeError("the device is out of memory")

    completion = Completion(fails, lambda result: False)
    completion.add(0)
    assert len(completion.take_all()) == 1
    completion.add(1)  # the next epoch
    assert len(completion.take_all()) == 1


def test_what_is_done_before_a_step_that_is_done_is_done_no_later(device: Device) -> None:
    """The thread waits for Python's lock while the host sees the last result."""
    blocked = threading.Event()
    completion = Completion(lambda number: blocked.wait(10), device.is_ready)
    completion.add(0)
    completion.add(1)
    device.finished[1].set()
    completion.look(7)
    blocked.set()
    assert list(completion.take_all()) == [7, 7]
