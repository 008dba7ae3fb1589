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
from collections.abc import Callable, Mapping, Sequence
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
    replaced: Replaced | None = None,
) -> int:
    """Runs a script as the main program and returns its exit code.

    An uncaught error of the script is printed as Python prints it, without the frames of this package.

    Args:
      path: of the script, as given at the command line.
      arguments: of the script.
      before_end: called when the script has ended, with the exception that ended it, or None, and the exit code.
      replaced: texts that are run in place of those of files, the script among them.
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
        if replaced is not None:
            replaced.attach()
            content = replaced.text_of(absolute) or content
        exec(compile(content, absolute, "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:  # also SystemExit and KeyboardInterrupt, which decide the exit code
        ended_by = error
    with suppress(Exception):
        sys.stdout.flush()
    code = _exit_code(ended_by)
    before_end(ended_by, code)
    return code


class Replaced:
    """Texts that Python runs in place of what files hold, which stay as they are.

    Args:
      texts: by the path of the file, without links.

    Attributes:
      not_run: the files whose text was not run so far.
    """

    def __init__(self, texts: Mapping[Path, str]) -> None:
        self._texts = {str(path): text for path, text in texts.items()}
        self.not_run = set(texts)

    def text_of(self, file: str) -> str | None:
        """Returns the text to run in place of a file's, and notes that it is run; None for other files."""
        path = os.path.realpath(file)
        self.not_run.discard(Path(path))
        return self._texts.get(path)

    def attach(self) -> None:
        """Has Python import these texts, and show their lines, to the end of the process."""
        self._import_them()
        self._show_their_lines()

    def _import_them(self) -> None:
        """Replaces what gives the code of a module: nothing of these texts may get into the folders of bytecode."""
        original: Callable[[SourceFileLoader, str], types.CodeType | None] = SourceFileLoader.get_code

        def get_code(loader: SourceFileLoader, fullname: str) -> types.CodeType | None:
            text = self.text_of(loader.path)
            if text is None:
                return original(loader, fullname)
            code: types.CodeType = loader.source_to_code(text, loader.path)
            return code

        SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]

    def _show_their_lines(self) -> None:
        """Replaces where Python looks up the lines of code: for tracebacks, and AutoGraph.

        AutoGraph makes a function anew from its lines, and asks `linecache` to read the file again before.
        """
        original = linecache.updatecache

        @functools.wraps(original)
        def updatecache(filename: str, module_globals: dict[str, Any] | None = None) -> list[str]:
            text = self._texts.get(os.path.realpath(filename))
            if text is None:
                return original(filename, module_globals)
            lines = [line if line.endswith("\n") else f"{line}\n" for line in io.StringIO(text, newline=None)]
            linecache.cache[filename] = (len(text), None, lines, filename)  # without a time: it is never out of date
            return lines

        linecache.updatecache = updatecache


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
