"""Runs a user's script as `python script.py` would."""

from __future__ import annotations

import builtins
import functools
import importlib.util
import io
import linecache
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

_PROFILES = unstall.HOME / "profiles"


def after_import(name: str, then: Callable[[], None]) -> None:
    """Calls `then` right after the first import of a module, wherever that import is; at once if it is imported."""
    if sys.modules.get(name) is not None:
        then()
        return
    sys.meta_path.insert(0, _After(name, then))


class _After:
    """An import finder that adds a call of `then` to the loader that other finders find for one module."""

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


def run_script(
    path: str,
    arguments: Sequence[str],
    before_end: Callable[[BaseException | None, int], None],
    *,
    source: str | None = None,
) -> int:
    """Runs a script as the main program and returns its exit code.

    An uncaught error of the script is printed as Python prints it, without the frames of this package.

    Args:
      path: of the script, as given at the command line.
      arguments: of the script.
      before_end: called when the script has ended, with the exception that ended it, or None, and the exit code.
      source: run this text in the place of the script's.
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
    sys.modules.pop("profiles", None)  # of `python -m profiles` in a checkout: the script may have its own
    sys.modules["__main__"] = module
    ended_by: BaseException | None = None
    try:
        with io.open_code(absolute) as file:
            content: bytes | str = file.read()
        if source is not None:
            _show_as_lines_of(absolute, source)
        exec(compile(source or content, absolute, "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:  # also SystemExit and KeyboardInterrupt, which decide the exit code
        ended_by = error
    with suppress(Exception):
        sys.stdout.flush()
    code = _exit_code(ended_by)
    before_end(ended_by, code)
    return code


def _show_as_lines_of(path: str, source: str) -> None:
    """Has Python take a text for what a file holds, where it looks up the lines of code: for tracebacks, and AutoGraph.

    AutoGraph makes a function anew from its lines, and asks `linecache` to read the file again before. It stays so to
    the end of the process.
    """
    lines = [line if line.endswith("\n") else f"{line}\n" for line in io.StringIO(source, newline=None)]
    original = linecache.updatecache

    @functools.wraps(original)
    def updatecache(filename: str, module_globals: dict[str, Any] | None = None) -> list[str]:
        if filename != path:
            return original(filename, module_globals)
        linecache.cache[path] = (len(source), None, lines, path)  # without a time: it is never out of date
        return lines

    linecache.updatecache = updatecache
    updatecache(path)


def wait_for_threads() -> None:
    """Waits for the threads that Python waits for at its end, except those of executors, which may be idle for ever."""
    of_executors = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", {})
    main: Any = threading.main_thread()
    # Python calls its main thread ended before it waits: a thread may run for as long as the main thread does.
    main.is_alive, main.join = lambda: False, lambda timeout=None: None
    try:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon and thread not in of_executors:
                thread.join()
    finally:
        del main.is_alive, main.join


def _exit_code(ended_by: BaseException | None) -> int:
    """Returns the exit code that Python would return, and prints the error that Python would print."""
    if ended_by is None:
        return 0
    if isinstance(ended_by, SystemExit):
        if ended_by.code is None or isinstance(ended_by.code, int):
            return (ended_by.code or 0) & 0xFF
        print(ended_by.code, file=sys.stderr)
        return 1
    if sys.excepthook is sys.__excepthook__:
        _print_error(ended_by)
    else:
        try:
            sys.excepthook(type(ended_by), ended_by, _without_own_frames(ended_by.__traceback__))
        except Exception as error:  # as Python does
            print("Error in sys.excepthook:", file=sys.stderr)
            _print_error(error)
            print("\nOriginal exception was:", file=sys.stderr)
            _print_error(ended_by)
    return 128 + signal.SIGINT if isinstance(ended_by, KeyboardInterrupt) else 1


def _print_error(error: BaseException) -> None:
    shown = traceback.TracebackException.from_exception(error)
    _drop_own_frames(shown)
    print("".join(shown.format()), end="", file=sys.stderr)


def _is_own_file(filename: str) -> bool:
    return _PROFILES in Path(filename).parents


def _without_own_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    if trace is None:
        return None
    rest = _without_own_frames(trace.tb_next)
    if _is_own_file(trace.tb_frame.f_code.co_filename):
        return rest
    return types.TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def _drop_own_frames(error: traceback.TracebackException) -> None:
    """Drops the frames of this package from an error, its causes and its parts."""
    error.stack[:] = [frame for frame in error.stack if not _is_own_file(frame.filename)]
    for related in (error.__cause__, error.__context__, *(error.exceptions or ())):
        if related is not None:
            _drop_own_frames(related)
