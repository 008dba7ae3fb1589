"""How a long command is stopped: by the first signal, and in order."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


class Stopped(BaseException):
    """A signal asked the run to end; like `KeyboardInterrupt` no `Exception`, that nobody takes it for a bad image."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """Turns the first SIGINT, SIGTERM or SIGHUP into `Stopped`; those behind it wait until the run has ended."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, frame: Any) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
