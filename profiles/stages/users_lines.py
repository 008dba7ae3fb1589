"""Finds the lines of a user's code that a loader spends its time in, by samples of a thread's stack."""

from __future__ import annotations

import ast
import itertools
import linecache
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType

from unstall.profiles import clock
from unstall.profiles.code_line import CodeLine
from unstall.profiles.stage_table import UsersLine
from unstall.profiles.stages.places import is_users

# The stack is looked at so often, while batches are made for so long.
_EVERY_S, _READ_S = 0.002, 0.6
# A function of the script's own is looked at so seldom at first, and half as often each time that it was seen so many
# times, until that has happened so often. No more looks than that are made in all: each walks all threads' stacks.
_SELDOM_S, _BEFORE_TWICE, _MOST_TIMES, _MOST_LOOKS = 0.01, 50, 5, 6000
# Fewer samples tell too little, and a line that takes less is not worth a look.
_LEAST_SAMPLES, _LEAST_RATIO = 20, 0.1
# How many lines are returned, and how long the code of one may be.
_MOST_LINES, _MOST_CHARACTERS = 3, 48


def users_lines(make: Callable[[], object]) -> tuple[UsersLine, ...]:
    """Makes batches in this thread for a moment. Returns the lines of the user's code that take the time.

    Args:
      make: makes a batch.
    Returns:
      Those that take a tenth of the time or more, the most costly first; none where too little was seen.
    """
    samples = _Samples()
    thread, done = threading.get_ident(), threading.Event()

    def look() -> None:
        last_ns = clock.now_ns()
        while not done.wait(_EVERY_S):
            frame, now_ns = sys._current_frames().get(thread), clock.now_ns()
            samples.add(frame, now_ns - last_ns, within=users_lines.__code__)
            last_ns = now_ns

    looking = threading.Thread(target=look, daemon=True)
    until_ns = clock.now_ns() + int(_READ_S * 1e9)
    looking.start()
    try:
        while clock.now_ns() < until_ns:
            make()
    finally:
        done.set()
        looking.join()
    return samples.lines()


class LinesWithin:
    """The lines that take the time of a function which the script runs itself, such as a generator that is read once.

    Whichever thread runs the function is looked at from `begin` to `end`, more and more seldom, until the function was
    seen often enough.

    Args:
      code: of the function; None where there is none to look at.
    """

    def __init__(self, code: CodeType | None) -> None:
        self._code = code
        self._samples = _Samples()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def seen(self) -> tuple[UsersLine, ...]:
        """The lines, as `users_lines` returns them."""
        return self._samples.lines()

    def begin(self) -> None:
        """Looks from now on, unless it does already."""
        if self._thread is None and self._code is not None:
            self._done.clear()
            self._thread = threading.Thread(target=self._look, name="unstall lines", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Looks no more."""
        self._done.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _look(self) -> None:
        last_ns = clock.now_ns()
        for _ in range(_MOST_LOOKS):
            times = self._samples.count // _BEFORE_TWICE
            if times >= _MOST_TIMES or self._done.wait(_SELDOM_S * 2**times):
                return
            now_ns = clock.now_ns()
            self._add_all(now_ns - last_ns)
            last_ns = now_ns

    def _add_all(self, ns: int) -> None:
        """Adds a look at each thread. No frame is held between looks: it would keep the script's data alive."""
        for frame in sys._current_frames().values():
            self._samples.add(frame, ns, within=self._code)


class _Samples:
    """What was seen of the stack inside a function: the time of each line of the user's.

    A line counts with all that it calls in libraries: of the stack's frames the innermost one of the user's is taken.
    What is seen counts for the time since the look before: where Python's lock is held, looks are fewer.

    Attributes:
      count: how often the function was seen.
    """

    def __init__(self) -> None:
        self.count = 0
        self._all_ns = 0
        # By where a frame is: its code, the instruction and the line.
        self._seen: Counter[tuple[CodeType, int, int]] = Counter()
        self._users: dict[str, bool] = {}

    def add(self, frame: FrameType | None, ns: int, *, within: CodeType | None) -> None:
        """Adds a look at a thread.

        Args:
          frame: the innermost of the thread.
          ns: for which the look counts.
          within: the function.
        """
        inside: list[FrameType] = []
        while frame is not None and frame.f_code is not within:
            inside.append(frame)
            frame = frame.f_back
        if frame is None:
            return
        self.count += 1
        self._all_ns += ns
        for one in (*inside, frame):
            file, line = one.f_code.co_filename, one.f_lineno
            if file not in self._users:
                self._users[file] = is_users(file)
            if self._users[file] and line is not None:
                self._seen[one.f_code, one.f_lasti, line] += ns
                return

    def lines(self) -> tuple[UsersLine, ...]:
        """Returns the lines that take a tenth of the time or more; none where the function was hardly seen."""
        if self.count < _LEAST_SAMPLES:
            return ()
        by_line: Counter[tuple[str, str]] = Counter()
        for (code, instruction, line), ns in dict(self._seen).items():
            by_line[str(CodeLine(file=code.co_filename, line=line)), _code_at(code, instruction, line)] += ns
        return tuple(
            UsersLine(location=location, code=code, ratio=ns / self._all_ns)
            for (location, code), ns in by_line.most_common(_MOST_LINES)
            if ns >= _LEAST_RATIO * self._all_ns
        )


def _code_at(code: CodeType, instruction: int, line: int) -> str:
    """Returns what is evaluated there, in short: "self.tokenizer(...)"; its whole line where that is not known."""
    whole = linecache.getline(code.co_filename, line).strip()
    position = next(itertools.islice(code.co_positions(), instruction // 2, None), None)
    first, last, begin, end = position or (None, None, None, None)
    if first is not None and last is not None and begin is not None and end is not None:
        lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][begin:]
        try:
            with warnings.catch_warnings(action="ignore"):
                part = ast.parse(b"".join(lines).decode().strip(), mode="eval")
        except (SyntaxError, UnicodeDecodeError):
            pass  # no expression of its own, as the beginning of a loop
        else:
            whole = ast.unparse(_Short().visit(part))
    return whole if len(whole) <= _MOST_CHARACTERS else f"{whole[: _MOST_CHARACTERS - 3]}..."


class _Short(ast.NodeTransformer):
    """Leaves out the arguments of calls."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        given: list[ast.expr] = [ast.Constant(...)] if node.args or node.keywords else []
        return ast.Call(func=self.visit(node.func), args=given, keywords=[])
