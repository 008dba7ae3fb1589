"""Finds out what a training run waits for: `unstall VERB`, and `from unstall import profiles`.

This package holds all of ours (`unstall.profiles`, `unstall.pipeline`, `unstall.models`, `unstall.benchmarks`), so that
no name of ours hides a package of a user's. In a checkout their folders lie next to this one.

Importing it registers nothing in the process. It needs the standard library alone.
"""

from __future__ import annotations

import sys
from typing import Any

from unstall import commands  # noqa: F401 - notes how this process was started
from unstall.home import HOME, ROOT
from unstall.importing import of_ours, of_users

__all__ = ["HOME", "ROOT", "main", "of_ours", "of_users"]

if HOME == ROOT:  # a checkout
    __path__.append(str(HOME))


def main() -> int:
    """The console script: `unstall VERB`."""
    code: int = of_ours("benchmarks.cli:main")()
    return code


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython for `%load_ext unstall`: registers the cell magic `%%stalls`."""
    of_ours("profiles.magic:load")(shell)


if sys.platform != "linux":
    print(
        f"unstall: tested on Linux. On {sys.platform} `from unstall import profiles` works; worker processes, the page "
        "cache, hardware counters and quotas of control groups are not supported.",
        file=sys.stderr,
    )
