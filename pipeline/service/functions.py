"""Names for Python functions that go with a graph to another process: what a function is called, and a digest of it.

TensorFlow itself names a function by a counter: in another process the same number may be another function, which would
be called without an error. By its name and digest a function is either the same there, or missing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

# A function or an object that is called may carry its own digest, of all that its result depends on.
DIGEST = "service_digest"
_DIGEST_LETTERS = 16
# A function in a function in a function counts, and no more.
_DEPTH = 3
_PLAIN = (bool, int, float, str, bytes, type(None))


def digest_of(*texts: str) -> str:
    """Returns a digest of texts, each of which counts with its length."""
    digest = hashlib.blake2b(digest_size=_DIGEST_LETTERS // 2)
    for text in texts:
        encoded = text.encode("utf-8", "surrogateescape")
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()


def function_name(function: Callable[..., Any]) -> str:
    """Returns the name of a function, and a digest of what it does.

    The digest is of the source, and of the values that the function closes over, has as defaults, uses as globals or
    holds as an object: numbers, texts, arrays, and lists of these. Other values count by their type alone.
    """
    function = _unwrapped(function)
    owner = getattr(function, "__self__", None)
    plain = function if hasattr(function, "__qualname__") else type(function)
    where = plain.__module__
    if where == "__main__":  # a script; another process imports it by the name of its file
        where = Path(str(getattr(sys.modules[where], "__file__", where))).stem
    own = getattr(owner if owner is not None else function, DIGEST, None)
    digest = own if isinstance(own, str) else digest_of(*_texts(function))
    return f"{where}.{plain.__qualname__}:{digest}"


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what TensorFlow has wrapped. Wrappers of a user's count as they are."""
    while inspect.isfunction(function) and "tensorflow" in function.__code__.co_filename:
        # Around an object that is called, TensorFlow's wrapper holds it only as what it closes over.
        inner = getattr(function, "__wrapped__", None) or inspect.getclosurevars(function).nonlocals.get("func")
        if inner is None:
            break
        function = inner
    return function


def _texts(function: Any, depth: int = 0) -> list[str]:
    """Returns texts of all that a function's result depends on, as far as it can be told."""
    if depth > _DEPTH:
        return [type(function).__qualname__]
    if isinstance(function, functools.partial):
        held = function.args, sorted(function.keywords.items())
        return ["partial", *_texts(function.func, depth + 1), *(_value_text(value, depth) for value in held)]
    if inspect.ismethod(function):
        return [*_texts(function.__func__, depth + 1), _value_text(function.__self__, depth)]
    if inspect.isfunction(function):
        values: list[Any] = [function.__defaults__, sorted((function.__kwdefaults__ or {}).items())]
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # a name that has no value yet
                values.append(cell.cell_contents)
        values += [function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__]
        return [_source(function), *(_value_text(value, depth) for value in values)]
    if inspect.isroutine(function):
        return [repr(getattr(function, "__qualname__", function))]
    return [_source(type(function)), _value_text(function, depth)]


def _value_text(value: Any, depth: int) -> str:
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, np.ndarray):
        return digest_of(str(value.dtype), str(value.shape), value.tobytes().hex())
    if isinstance(value, (tuple, list)) and depth <= _DEPTH:
        return digest_of(*(_value_text(part, depth + 1) for part in value))
    if inspect.isfunction(value) or inspect.ismethod(value) or isinstance(value, functools.partial):
        return digest_of(*_texts(value, depth + 1))
    if depth > _DEPTH or inspect.ismodule(value) or isinstance(value, type):
        return getattr(value, "__name__", type(value).__qualname__)
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    held = {**{name: getattr(value, name, None) for name in slots}, **getattr(value, "__dict__", {})}
    kept = [(name, part) for name, part in sorted(held.items()) if isinstance(part, (*_PLAIN, np.ndarray, tuple, list))]
    return digest_of(type(value).__qualname__, *(f"{name} {_value_text(part, depth + 1)}" for name, part in kept))


def _source(subject: Any) -> str:
    try:
        return inspect.getsource(subject)
    except (OSError, TypeError):
        code = getattr(subject, "__code__", None)
        return repr(subject) if code is None else _code_text(code)


def _code_text(code: CodeType) -> str:
    """Returns a text of compiled code. The text of the code inside it would hold addresses."""
    constants = [_code_text(part) if isinstance(part, CodeType) else repr(part) for part in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"
