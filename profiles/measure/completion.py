"""Finds out when a device that computes behind the host has finished its steps."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from unstall.profiles import clock


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
            # All steps before it are done as well; those that are taken were noted before.
            for done in range(self._given, number + 1):
                self._done_ns[done] = min(now_ns, self._done_ns.get(done, now_ns))
            self._noted.notify_all()
