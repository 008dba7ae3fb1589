"""Finds out when a device that computes behind the host has finished each step."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from profiles import clock
from profiles.script.epochs import Tally, hooks_since


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStep:
    """The times of a step on the host, by `clock.now_ns`.

    Attributes:
      asked_ns, fetched_ns: when the host asked for the batch, and when it had the batch.
      hooks_ns: (beginning, end) of each batch hook of callbacks since the step before.
      images: in the batch; None if unknown.
      steps: that this call made.
      traced: whether the call traced or compiled the model.
    """

    asked_ns: int
    fetched_ns: int
    hooks_ns: tuple[tuple[int, int], ...]
    images: int | None
    steps: int
    traced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStep:
    """The times of a step as the device sees them: only what the host does while the device is idle counts.

    Attributes:
      asked_ns, fetched_ns: as in `HostStep`, but not before the device had finished the step before.
      done_ns: when the device had finished the step.
      hooks_ns: time of the batch hooks of callbacks while the device was idle, in nanoseconds.
    """

    asked_ns: int
    fetched_ns: int
    done_ns: int
    hooks_ns: int


def on_device(step: HostStep, free_ns: int | None, done_ns: int) -> DeviceStep:
    """Returns the times of a step on the device.

    Args:
      free_ns: when the device had finished the step before; None for the first step, for which the device was idle.
      done_ns: when the device had finished this step.
    """
    free_ns = min(0 if free_ns is None else free_ns, done_ns)
    return DeviceStep(
        asked_ns=max(step.asked_ns, free_ns),
        fetched_ns=max(step.fetched_ns, free_ns),
        done_ns=done_ns,
        hooks_ns=hooks_since(free_ns, step.hooks_ns),
    )


def settle(tally: Tally, pending: deque[HostStep], done_ns: Sequence[int]) -> None:
    """Adds to a tally the next of the pending steps, which the device has finished at the given times."""
    for moment_ns in done_ns:
        host_step = pending.popleft()
        step = on_device(host_step, tally.last_ns if tally.calls else None, moment_ns)
        tally.add(
            step.asked_ns,
            step.fetched_ns,
            step.done_ns,
            host_step.images,
            host_step.steps,
            traced=host_step.traced,
            hooks_ns=step.hooks_ns,
        )


class Completion:
    """Waits for the results of steps in a thread, in their order, and notes when each is there.

    The thread needs Python's lock to read the clock, and waits up to 5 ms for it while a loader computes in Python. So
    the host also looks itself, wherever it reads the clock: a result that is there was there by then.

    Args:
      wait: returns when a given result has been computed.
      is_ready: whether a given result has been computed.
    """

    def __init__(self, wait: Callable[[Any], None], is_ready: Callable[[Any], bool]) -> None:
        self._wait = wait
        self._is_ready = is_ready
        self._results: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
        self._added = self._given = 0
        self._last: Any = None
        self._done_ns: dict[int, int] = {}
        self._noted = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, result: Any) -> None:
        """Adds the result of the step that the host has just handed to the device."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="unstall: waits for the device", daemon=True)
            self._thread.start()
        self._last = result
        self._results.put((self._added, result))
        self._added += 1

    def look(self, now_ns: int) -> None:
        """Notes that the last result is there, if it is. The device is idle from now on, at the latest."""
        if self._last is not None and self._is_ready(self._last):
            self._last = None
            self._note(self._added - 1, now_ns)

    def take(self) -> Sequence[int]:
        """Returns when the next steps were done that are done by now, in their order, each step once."""
        with self._noted:
            return self._take()

    def take_all(self) -> Sequence[int]:
        """Waits until the device has finished all steps, ends the thread, and returns as `take` does."""
        with self._noted:
            self._noted.wait_for(lambda: self._given + len(self._done_ns) == self._added)
            done_ns = self._take()
        self._last = None
        if self._thread is not None:
            self._results.put(None)
            self._thread.join()
            self._thread = None
        return done_ns

    def _take(self) -> list[int]:
        taken = []
        # The number of a step that is done may be missing from the front: its thread has not noted the time yet.
        while self._given in self._done_ns:
            taken.append(self._done_ns.pop(self._given))
            self._given += 1
        return taken

    def _run(self) -> None:
        while (item := self._results.get()) is not None:
            number, result = item
            try:
                self._wait(result)
            except Exception:  # the script's own thread meets this error, too, and raises it
                pass
            finally:
                del result, item
            self._note(number, clock.now_ns())

    def _note(self, number: int, now_ns: int) -> None:
        with self._noted:
            if number >= self._given:  # otherwise the step was noted and taken before
                self._done_ns[number] = min(now_ns, self._done_ns.get(number, now_ns))
            self._noted.notify_all()
