"""Line by line: the Python functions that a loader spends its time in, as annotated source."""

from __future__ import annotations

import gc
import inspect
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
from line_profiler import LineProfiler

from profiles import clock
from profiles.stage_table import AnnotatedFunction, Line
from profiles.stages.tf_graph import nodes, python_functions_wrapped, serial

# Functions that matter: the most expensive ones, each with at least this part of the time in lines of its own.
_MOST_FUNCTIONS, _LEAST_RATIO = 6, 0.03
# How long such functions are looked for, and how long their lines are timed.
SEARCH_S, LINES_S = 0.5, 2.0
_OURS = str(Path(__file__).resolve().parents[1])
_STANDARD = sysconfig.get_paths()["stdlib"]


def annotate(data: Any) -> tuple[AnnotatedFunction, ...]:
    """Reads some batches in this thread, and times the lines of the Python functions that take longest.

    Functions of a PyDataset run when its batches are asked for; those of a tf.data pipeline in
    `tf.numpy_function` and `tf.py_function`, and where Python generates. What TensorFlow runs has no lines.

    Args:
      data: a keras.utils.PyDataset or a tf.data.Dataset; read by hand, without workers.
    Returns:
      The most expensive function first; empty where no Python code runs.
    """
    own_ns: dict[types.CodeType, int] = {}
    _read(data, lambda function: _noting(function, own_ns), SEARCH_S)
    functions = _functions_of(_that_matter(own_ns))
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
    annotated = []
    for (path, first, name), timings in stats.timings.items():
        total_us = sum(time for _, _, time in timings) * stats.unit * 1e6
        if total_us:
            annotated.append(_annotated(path, first, name, timings, stats.unit * 1e6, total_us))
    return tuple(sorted(annotated, key=lambda one: -one.total_us))


def _annotated(
    path: str, first: int, name: str, timings: list[tuple[int, int, int]], unit_us: float, total_us: float
) -> AnnotatedFunction:
    by_number = {number: (hits, time * unit_us) for number, hits, time in timings}
    with open(path, encoding="utf-8", errors="replace") as file:
        source = inspect.getblock(file.read().splitlines(keepends=True)[first - 1 :])
    lines = []
    for number, text in enumerate(source, first):
        hits, us = by_number.get(number, (0, 0.0))
        lines.append(Line(number=number, source=text.rstrip("\n"), hits=hits, us=us, ratio=us / total_us))
    return AnnotatedFunction(
        function=name, location=f"{os.path.basename(path)}:{first}", total_us=total_us, lines=tuple(lines)
    )


def _read(data: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]], limit_s: float) -> None:
    """Reads batches one after another, at most an epoch, with the functions that Python runs wrapped."""
    until_ns = clock.now_ns() + int(limit_s * 1e9)
    if isinstance(data, keras.utils.PyDataset):
        make = wrap(data.__getitem__)
        for index in range(data.num_batches):
            make(index)
            if clock.now_ns() > until_ns:
                break
        return

    pipeline = nodes(data)
    with python_functions_wrapped(pipeline, wrap):
        for _ in serial(pipeline)[-1]:
            if clock.now_ns() > until_ns:
                break


def _noting(function: Callable[..., Any], own_ns: dict[types.CodeType, int]) -> Callable[..., Any]:
    """Adds up the time that each Python function spends in its own lines and in compiled code that it calls."""

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


def _that_matter(own_ns: Mapping[types.CodeType, int]) -> list[types.CodeType]:
    total_ns = sum(own_ns.values())
    mine = [code for code, ns in own_ns.items() if _is_users(code) and ns > _LEAST_RATIO * total_ns]
    return sorted(mine, key=lambda code: -own_ns[code])[:_MOST_FUNCTIONS]


def _is_users(code: types.CodeType) -> bool:
    """Whether it has source that is neither ours nor of Python, TensorFlow or NumPy; a loader of a library's counts."""
    path = os.path.abspath(code.co_filename)
    if not os.path.isfile(path) or path.startswith(_OURS + os.sep) or "/tensorflow/" in path or "/numpy/" in path:
        return False
    return "site-packages" in path or not path.startswith(_STANDARD + os.sep)


def _functions_of(codes: Sequence[types.CodeType]) -> list[Any]:
    """Finds the functions whose code these are; a comprehension or a module has none."""
    frozen = gc.get_freeze_count()
    if frozen:  # what is frozen is not looked through
        gc.unfreeze()
    try:
        found = [
            next((one for one in gc.get_referrers(code) if isinstance(one, types.FunctionType)), None) for code in codes
        ]
    finally:
        if frozen:
            gc.freeze()
    return [function for function in found if function is not None]
