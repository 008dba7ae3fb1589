"""Runs somebody's script as `python script.py` would."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any

import unstall

_PROFILES = Path(__file__).resolve().parents[1]


def after_import(name: str, then: Callable[[], None]) -> None:
    """Calls a function right after a module has been imported for the first time: whoever imports it, whenever."""
    if name in sys.modules:
        then()
        return
    sys.meta_path.insert(0, _After(name, then))


class _After:
    """A finder that finds nothing itself, but adds to what the others find of one module."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then
        self._looking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self._name or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            run(module)
            with suppress(ValueError):
                sys.meta_path.remove(self)
            self._then()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def run_script(path: str, arguments: Sequence[str], before_end: Callable[[BaseException | None], None]) -> int:
    """Runs a script as the main program and returns its exit code.

    What it prints, raises and returns is its own. An error that nobody catches is shown as Python shows it, without
    the frames that are ours.

    Args:
      path: as given at the command line.
      before_end: called when the script has ended, with what ended it.
    """
    module = types.ModuleType("__main__")
    absolute = os.path.abspath(path)
    module.__dict__.update(
        __file__=absolute,
        __builtins__=builtins,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", absolute),
        __annotations__={},
    )
    sys.argv[:] = [path, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(path).resolve().parent)
    unstall.forget()
    sys.modules["__main__"] = module
    ended_by: BaseException | None = None
    try:
        with io.open_code(absolute) as file:
            source = file.read()
        exec(compile(source, absolute, "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:  # all of them are the script's own: its exit code depends on which
        ended_by = error
    with suppress(Exception):
        sys.stdout.flush()
    code = _exit_code(ended_by)
    before_end(ended_by)
    return code


def wait_for_threads() -> None:
    """Waits for threads that Python would wait for at its end, but for those of an executor: they wait for work."""
    idle = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", {})
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon and thread not in idle:
            thread.join()


def _exit_code(ended_by: BaseException | None) -> int:
    """Returns the exit code that Python would give, and shows what it would show."""
    if ended_by is None:
        return 0
    if isinstance(ended_by, SystemExit):
        if ended_by.code is None or isinstance(ended_by.code, int):
            return (ended_by.code or 0) & 0xFF
        print(ended_by.code, file=sys.stderr)
        return 1
    if sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(ended_by), ended_by, _without_ours(ended_by.__traceback__))
    else:
        shown = traceback.TracebackException.from_exception(ended_by)
        _strip(shown)
        print("".join(shown.format()), end="", file=sys.stderr)
    return 128 + signal.SIGINT if isinstance(ended_by, KeyboardInterrupt) else 1


def _frame_is_ours(filename: str) -> bool:
    return _PROFILES in Path(filename).parents


def _without_ours(trace: types.TracebackType | None) -> types.TracebackType | None:
    if trace is None:
        return None
    rest = _without_ours(trace.tb_next)
    if _frame_is_ours(trace.tb_frame.f_code.co_filename):
        return rest
    return types.TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def _strip(shown: traceback.TracebackException) -> None:
    """Drops our frames from an error and from those behind it."""
    shown.stack[:] = [frame for frame in shown.stack if not _frame_is_ours(frame.filename)]
    for behind in (shown.__cause__, shown.__context__, *(shown.exceptions or ())):
        if behind is not None:
            _strip(behind)
