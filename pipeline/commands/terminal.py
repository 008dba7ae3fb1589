"""What commands share: their words, the first signal that stops them in order, and what C libraries write to stderr.

libjpeg writes a line of each damaged file to standard error; it is counted, and kept off the terminal.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from pipeline.text import shown


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


# libjpeg's and libpng's own words for data that are damaged.
_OF_DATA = (b"Corrupt JPEG data", b"Premature end of JPEG", b"libpng warning", b"libpng error")


@dataclass(slots=True)
class Noise:
    """What decoders said while they were not heard.

    Attributes:
      warnings: lines about damaged data.
      first: of these lines.
    """

    warnings: int = 0
    first: str = ""

    def sentence(self) -> str | None:
        """Says how much that was and where to look; None of nothing."""
        if not self.warnings:
            return None
        return (
            f"decoders warned {self.warnings:,} times of damaged files, first: {self.first}. "
            "python -m benchmarks.doctor names them."
        )


@contextlib.contextmanager
def decoders_unheard() -> Iterator[Noise]:
    """Sends descriptor 2 to a file, and Python's own standard error to where it led before.

    What it held about damaged data is in the value when the block has ended.
    """
    noise = Noise()
    python_stderr = sys.stderr
    kept = os.dup(2)
    with tempfile.TemporaryFile() as unheard, open(kept, "w", encoding="utf-8", errors="backslashreplace") as heard:
        with contextlib.suppress(OSError, ValueError):  # what has no descriptor does not use this one
            if python_stderr.fileno() == 2:
                python_stderr.flush()
                sys.stderr = heard
        os.dup2(unheard.fileno(), 2)
        try:
            yield noise
        finally:
            os.dup2(kept, 2)
            sys.stderr = python_stderr
            unheard.seek(0)
            for line in unheard:
                if any(words in line for words in _OF_DATA):
                    noise.first = noise.first or shown(line.decode("utf-8", "replace").strip())
                    noise.warnings += 1


class ArgumentParser(argparse.ArgumentParser):
    """Repeats a wrong word so that no terminal obeys it: a name that a shell filled in may hold anything."""

    def error(self, message: str) -> NoReturn:
        super().error(shown(message))
