"""What commands share: messages, signals that end a run in order, and what decoders write.

libjpeg writes a line to stderr for each damaged file: `decoders_unheard` counts these lines and keeps them off the
terminal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unstall.commands import typed
from unstall.text import printable

if TYPE_CHECKING:
    from rich.console import Console

# How long after a signal was lost it comes again, in seconds.
_AGAIN_S = 0.01


class Stopped(BaseException):
    """A signal asked the run to end. Like `KeyboardInterrupt` no `Exception`: code that handles bad images lets it by.

    Attributes:
      exit_code: 128 + the signal's number.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """Raises `Stopped` at the first SIGINT, SIGTERM or SIGHUP, and ignores further ones until the block has ended."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(received: int, frame: Any) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise Stopped(received)

    def send_again(received: int, thread: int) -> None:
        if signal.getsignal(received) is stop:  # once the block has ended, the signal might kill the process
            # To that thread, as a signal that another gets ends no wait.
            signal.pthread_kill(thread, received)

    def stop_again(swallowed: Any) -> None:
        # Python drops an exception that is raised while it frees an object. The signal comes again a moment later.
        if not isinstance(swallowed.exc_value, Stopped):
            unraisable(swallowed)
            return
        for number in numbers:
            signal.signal(number, stop)
        threading.Timer(_AGAIN_S, send_again, (swallowed.exc_value.exit_code - 128, threading.get_ident())).start()

    before = {number: signal.signal(number, stop) for number in numbers}
    unraisable, sys.unraisablehook = sys.unraisablehook, stop_again
    try:
        yield
    finally:
        sys.unraisablehook = unraisable
        for number, handler in before.items():
            signal.signal(number, handler)


# Words in the lines that libjpeg and libpng write about damaged data.
_DAMAGE_WORDS = (b"Corrupt JPEG data", b"Premature end of JPEG", b"libpng warning", b"libpng error")


@dataclass(slots=True)
class Noise:
    """What decoders wrote to stderr about damaged data.

    Attributes:
      warnings: number of lines.
      first: the first line, safe to print; "" if there is none.
    """

    warnings: int = 0
    first: str = ""

    def sentence(self) -> str | None:
        """Returns a sentence with the number of warnings and what to do; None if there are none."""
        if not self.warnings:
            return None
        return (
            f"decoders warned {self.warnings:,} times of damaged files, first: {self.first}. unstall doctor names them."
        )


@contextlib.contextmanager
def decoders_unheard() -> Iterator[Noise]:
    """Sends descriptor 2 to a temporary file; Python's own `sys.stderr` still leads to where it led before.

    The yielded `Noise` is filled in at the end of the block.
    """
    noise = Noise()
    python_stderr = sys.stderr
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured, open(stderr, "w", encoding="utf-8", errors="backslashreplace") as heard:
        with contextlib.suppress(OSError, ValueError):  # a `sys.stderr` without a descriptor does not use descriptor 2
            if python_stderr.fileno() == 2:
                python_stderr.flush()
                sys.stderr = heard
        os.dup2(captured.fileno(), 2)
        try:
            yield noise
        finally:
            os.dup2(stderr, 2)
            sys.stderr = python_stderr
            captured.seek(0)
            for line in captured:
                if any(words in line for words in _DAMAGE_WORDS):
                    noise.first = noise.first or printable(line.decode("utf-8", "replace").strip())
                    noise.warnings += 1


def tell(console: Console, text: str, *, style: str | None = None) -> None:
    """Prints a line as it is: whatever it holds, no terminal obeys it and rich reads no markup in it."""
    console.print(typed(printable(text)), style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)
