"""Times the lines of a loader's slowest Python functions, and returns their source with these times."""

from __future__ import annotations

import gc
import inspect
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from line_profiler import LineProfiler

import unstall
from unstall.profiles import clock
from unstall.profiles.data import adapter
from unstall.profiles.stage_table import AnnotatedFunction, SourceLine

# How many functions are annotated at most; each spends at least this part of the time in its own lines.
_MOST_FUNCTIONS, _LEAST_RATIO = 6, 0.03
# How long the slowest functions are looked for, and how long their lines are timed.
SEARCH_S, LINES_S = 0.5, 2.0
_OWN_FOLDER = str(unstall.HOME / "profiles")
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]


def annotate(data: Any) -> tuple[AnnotatedFunction, ...]:
    """Reads some batches in this thread, without workers, and times the lines of the slowest Python functions.

    Python functions run in a PyDataset when a batch is asked for, in the data set of a DataLoader when a sample is, and
    in a tf.data pipeline in `tf.numpy_function`, `tf.py_function` and `from_generator`. TensorFlow's own operations
    have no lines.

    Args:
      data: a keras.utils.PyDataset, a DataLoader of PyTorch's whose data set is read by index, or a tf.data.Dataset.
    Returns:
      The functions, the slowest first; empty where no Python code runs.
    Raises:
      CutError: if a tf.data pipeline cannot be taken apart.
    """
    own_ns: dict[types.CodeType, int] = {}
    _read(data, lambda function: _noting(function, own_ns), SEARCH_S)
    functions = _functions_of(_slowest(own_ns))
    if not functions:
        return ()
    profiler = LineProfiler(*functions)

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with profiler:
                return function(*arguments, **options)

        return call

    _read(data, timed, LINES_S)
    stats = profiler.get_stats()
    # Not every version of line_profiler names the class of a method.
    codes = [function.__code__ for function in functions]
    names = {(code.co_filename, code.co_firstlineno): code.co_qualname for code in codes}
    annotated = []
    for (path, first, name), timings in stats.timings.items():
        total_us = sum(time for _, _, time in timings) * stats.unit * 1e6
        if total_us:
            shown = names.get((path, first), name)
            annotated.append(_annotated(path, first, shown, timings, stats.unit * 1e6, total_us))
    return tuple(sorted(annotated, key=lambda function: -function.total_us))


def _annotated(
    path: str, first: int, name: str, timings: list[tuple[int, int, int]], unit_us: float, total_us: float
) -> AnnotatedFunction:
    by_number = {number: (hits, time * unit_us) for number, hits, time in timings}
    with open(path, encoding="utf-8", errors="replace") as file:
        source = inspect.getblock(file.read().splitlines(keepends=True)[first - 1 :])
    lines = []
    for number, text in enumerate(source, first):
        hits, us = by_number.get(number, (0, 0.0))
        lines.append(SourceLine(number=number, source=text.rstrip("\n"), hits=hits, us=us, ratio=us / total_us))
    return AnnotatedFunction(
        function=name, location=f"{os.path.basename(path)}:{first}", total_us=total_us, lines=tuple(lines)
    )


def _read(data: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]], limit_s: float) -> None:
    """Reads at most one epoch of batches, one after another, with all Python functions wrapped by `wrap`."""
    until_ns = clock.now_ns() + int(limit_s * 1e9)
    for _ in adapter(data).wrapped(data, wrap):
        if clock.now_ns() > until_ns:
            break


def _noting(function: Callable[..., Any], own_ns: dict[types.CodeType, int]) -> Callable[..., Any]:
    """Wraps a function, to add to `own_ns` what each Python function takes, less the Python functions that it calls."""

    def call(*arguments: Any, **options: Any) -> Any:
        stack: list[list[Any]] = []

        def note(frame: types.FrameType, event: str, _: Any) -> None:
            now_ns = clock.now_ns()
            if event == "call":
                stack.append([frame.f_code, now_ns, 0])
            elif event == "return" and stack:
                code, began_ns, inner_ns = stack.pop()
                own_ns[code] = own_ns.get(code, 0) + now_ns - began_ns - inner_ns
                if stack:
                    stack[-1][2] += now_ns - began_ns

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            return function(*arguments, **options)
        finally:
            sys.setprofile(before)

    return call


def _slowest(own_ns: Mapping[types.CodeType, int]) -> list[types.CodeType]:
    total_ns = sum(own_ns.values())
    codes = [code for code, ns in own_ns.items() if _is_users(code) and ns > _LEAST_RATIO * total_ns]
    return sorted(codes, key=lambda code: -own_ns[code])[:_MOST_FUNCTIONS]


def _is_users(code: types.CodeType) -> bool:
    """Whether code has source, and is not part of this package, Python, TensorFlow or NumPy. Other libraries count."""
    path = os.path.abspath(code.co_filename)
    if not os.path.isfile(path) or path.startswith(_OWN_FOLDER + os.sep) or "/tensorflow/" in path or "/numpy/" in path:
        return False
    return "site-packages" in path or not path.startswith(_STANDARD_LIBRARY + os.sep)


def _functions_of(codes: Sequence[types.CodeType]) -> list[Any]:
    """Returns the functions that have this code; code of a comprehension or a module belongs to none."""
    frozen = gc.get_freeze_count()
    if frozen:  # `gc.get_referrers` does not look through frozen objects
        gc.unfreeze()
    try:
        functions = [
            next((owner for owner in gc.get_referrers(code) if isinstance(owner, types.FunctionType)), None)
            for code in codes
        ]
    finally:
        if frozen:
            gc.freeze()
    return [function for function in functions if function is not None]
