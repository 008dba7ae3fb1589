"""Finds the lines of a user's code that a loader spends its time in, by samples of a thread's stack."""

from __future__ import annotations

import ast
import itertools
import linecache
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType

from unstall.profiles import clock
from unstall.profiles.code_line import line_of
from unstall.profiles.stage_table import UsersLine
from unstall.profiles.stages.places import is_users

# The stack is looked at so often, while batches are made for so long.
_EVERY_S, _READ_S = 0.002, 0.6
# Fewer samples tell too little, and a line that takes less is not worth a look.
_LEAST_SAMPLES, _LEAST_RATIO = 20, 0.1
# How many lines are returned, and how long the code of one may be.
_MOST_LINES, _MOST_CHARACTERS = 3, 48


def users_lines(make: Callable[[], object]) -> tuple[UsersLine, ...]:
    """Makes batches in this thread for a moment. Returns the lines of the user's code that take the time.

    A line counts with all that it calls in libraries: of the stack's frames the innermost one of the user's is taken.
    What is seen counts for the time since the look before: where Python's lock is held, looks are fewer.

    Args:
      make: makes a batch.
    Returns:
      Those that take a tenth of the time or more, the most costly first; none where too little was seen.
    """
    seen: Counter[tuple[str, str]] = Counter()
    samples = all_ns = 0
    thread, done = threading.get_ident(), threading.Event()

    def look() -> None:
        nonlocal samples, all_ns
        last_ns = clock.now_ns()
        while not done.wait(_EVERY_S):
            frame, now_ns = _innermost(sys._current_frames().get(thread)), clock.now_ns()
            if frame is not None:
                seen[str(line_of(frame)), _code_at(frame)] += now_ns - last_ns
            samples += 1
            all_ns += now_ns - last_ns
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
    if samples < _LEAST_SAMPLES:
        return ()
    return tuple(
        UsersLine(location=location, code=code, ratio=ns / all_ns)
        for (location, code), ns in seen.most_common(_MOST_LINES)
        if ns >= _LEAST_RATIO * all_ns
    )


def _innermost(frame: FrameType | None) -> FrameType | None:
    """Returns the innermost frame of the user's code that makes a batch, not of what asked for these samples."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = None if frame.f_code is users_lines.__code__ else frame.f_back
    return frame


def _code_at(frame: FrameType) -> str:
    """Returns what a frame now evaluates, in short: "self.tokenizer(...)"; its whole line where that is not known."""
    code = frame.f_code
    whole = linecache.getline(code.co_filename, frame.f_lineno).strip()
    position = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), None)
    first, last, begin, end = position or (None, None, None, None)
    if first is not None and last is not None and begin is not None and end is not None:
        lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][begin:]
        try:
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
