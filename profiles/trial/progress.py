"""Says on the terminal which data of a script are read again, how far that is, and how long it took."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from unstall.profiles import clock


class ReadingProgress:
    """A line that changes on a terminal; elsewhere, a line before the reading and a line after it.

    The line changes only in `begin` and `note`, and not by a thread of its own, which would take CPU time from the runs
    that are timed.

    Args:
      console: to print to.
      names: of the `fit` whose data are read, each with a shorter one for narrow terminals: "fit 1" for "fit 1
        (train.py:42)". Nothing is printed if there is none.
    """

    def __init__(self, console: Console, names: Mapping[str, str]) -> None:
        self._console = console
        self._names = names
        self._left = list(names)
        self._name = ""
        self._changes = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._began_ns = self._runs_began_ns = 0
        # A thread that still reads data, after it was given up, prints nothing more.
        self._lock = threading.Lock()
        self._shows = False

    def __enter__(self) -> ReadingProgress:
        self._began_ns = clock.now_ns()
        if self._names and self._changes:
            with _if_possible():
                self._live.start()
                self._shows = True
        elif self._names:
            self._say(f"reading the stages of {self._what()}; Ctrl-C leaves them out")
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock, _if_possible():
            if self._shows:
                self._shows = False
                self._live.stop()
        if self._names:
            self._say(f"reading the stages of {self._what()} took {(clock.now_ns() - self._began_ns) / 1e9:.0f} s")

    def begin(self, name: str) -> None:
        """Notes that the data of a `fit` is read from now on."""
        self._name = name
        self._left.remove(name)
        self._show("")

    def note(self, done: int, total: int) -> None:
        """Notes that so many runs of all were made. The time left is that of the runs so far."""
        now_ns = clock.now_ns()
        if not done:
            self._runs_began_ns = now_ns
            return
        left_s = (now_ns - self._runs_began_ns) / 1e9 / done * (total - done)
        self._show(f": {done} of {total}, about {max(round(left_s), 1)} s left")

    def _show(self, far: str) -> None:
        short = self._names[self._name]
        more = f"; then {' and '.join(self._names[name] for name in self._left)}" if self._left else ""
        lines = [
            f"reading the stages of {self._name}{far}{more} (Ctrl-C leaves them out)",
            f"reading the stages of {self._name}{far}{more}",
            f"reading the stages of {short}{far}{more}",
            f"reading {short}{far}",
        ]
        line = next((line for line in lines if len(line) <= self._console.width), lines[-1])
        with self._lock, _if_possible():
            if self._shows:
                self._live.update(Text(line, style="dim", no_wrap=True, overflow="ellipsis"), refresh=True)

    def _what(self) -> str:
        return next(iter(self._names)) if len(self._names) == 1 else f"{len(self._names)} fits"

    def _say(self, line: str) -> None:
        with _if_possible():
            self._console.print(Text(line, style="dim"), soft_wrap=True)


def _if_possible() -> contextlib.suppress:
    """A closed terminal must not keep the results from being measured and written. Rich ends by SystemExit then."""
    return contextlib.suppress(OSError, ValueError, SystemExit)


class Progress:
    """Says before something that takes long what it is, on a terminal what it does, and how long it took.

    Args:
      console: to print to.
      begins: the line before it.
      what: what took so long, for the line after it.
      of: how long it may take, behind the seconds of the line that changes: " of 60".
    """

    def __init__(self, console: Console, begins: str, *, what: str, of: str = "") -> None:
        self._console = console
        self._begins = begins
        self._what = what
        self._of = of
        self._changes = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._began_ns = 0

    def __enter__(self) -> Self:
        self._began_ns = clock.now_ns()
        with _if_possible():
            self._console.print()
            self._console.print(Text(self._begins, style="dim"), soft_wrap=True)
            if self._changes:
                self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        with _if_possible():
            if self._changes:
                self._live.stop()
            seconds = (clock.now_ns() - self._began_ns) / 1e9
            self._console.print(Text(f"{self._what} took {seconds:.0f} s", style="dim"), soft_wrap=True)

    def say(self, what: str) -> None:
        """Says what is measured from now on. The line changes in this call only, and no thread changes it."""
        seconds = (clock.now_ns() - self._began_ns) / 1e9
        with _if_possible():
            if self._changes:
                line = f"{seconds:.0f}{self._of} s: {what}"
                self._live.update(Text(line, style="dim", no_wrap=True, overflow="ellipsis"), refresh=True)


class TrialProgress(Progress):
    """Says how far a trial of remedies is.

    Args:
      console: to print to.
      name: of the `fit`, the loop or the data that are tried.
      budget_s: of the trial.
      options: what sets the budget, and what ends the trial.
    """

    def __init__(
        self, console: Console, name: str, budget_s: float, options: str = "--budget; Ctrl-C ends it; --no-trial"
    ) -> None:
        limit = f"for up to {budget_s:.0f} s ({options})"
        line = f"trying remedies for {name} on its own data and model, {limit}"
        super().__init__(console, line, what="trying remedies", of=f" of {budget_s:.0f}")
