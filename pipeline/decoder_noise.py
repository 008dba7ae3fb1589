"""Keeps what C libraries write to standard error off the terminal: libjpeg says a line of each damaged file."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.folders import shown

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
