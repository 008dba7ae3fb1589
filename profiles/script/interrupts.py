"""Ctrl-C that comes while Python frees an object."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# How long after Ctrl-C was dropped it comes again, in seconds.
_AGAIN_S = 0.01


@contextmanager
def ctrl_c_comes_through() -> Iterator[None]:
    """Has Ctrl-C come again that Python drops: in `__del__`, or in JAX's callback at each search for garbage."""
    thread = threading.get_ident()

    def send_again() -> None:
        if sys.unraisablehook is again:
            signal.pthread_kill(thread, signal.SIGINT)

    def again(dropped: Any) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            timers.append(threading.Timer(_AGAIN_S, send_again))
            timers[-1].start()
        else:
            before(dropped)

    timers: list[threading.Timer] = []
    before, sys.unraisablehook = sys.unraisablehook, again
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()
            timer.join()
