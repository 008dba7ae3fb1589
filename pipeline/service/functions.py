"""Names for Python functions that go with a graph to another process: what a function is called, and a digest of it.

TensorFlow itself names a function by a counter: in another process the same number may be another function, which would
be called without an error. By its name and digest a function is either the same there, or missing.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# A function or an object that is called may carry its own digest, of all that its result depends on.
DIGEST = "service_digest"
_DIGEST_LETTERS = 16
# Values of these types say the same in every process. Others, such as arrays and objects, are left out of a digest.
_PLAIN = (bool, int, float, str, bytes, type(None))


def digest_of(*texts: str) -> str:
    """Returns a digest of texts, each of which counts with its length."""
    digest = hashlib.blake2b(digest_size=_DIGEST_LETTERS // 2)
    for text in texts:
        encoded = text.encode("utf-8", "surrogateescape")
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()


def function_name(function: Callable[..., Any]) -> str:
    """Returns the name of a function, and a digest of its source and of the plain values that it closes over."""
    function = inspect.unwrap(function)
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    where = getattr(function, "__module__", type(function).__module__)
    if where == "__main__":  # a script; another process imports it by the name of its file
        where = Path(str(getattr(sys.modules[where], "__file__", where))).stem
    own = getattr(owner if owner is not None else function, DIGEST, None)
    return f"{where}.{name}:{own if isinstance(own, str) else digest_of(_source(function), *_closed_over(function))}"


def _source(function: Callable[..., Any]) -> str:
    subject = function if inspect.isroutine(function) else type(function)
    try:
        return inspect.getsource(subject)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return repr(subject) if code is None else f"{code.co_code.hex()} {code.co_consts!r}"


def _closed_over(function: Callable[..., Any]) -> list[str]:
    """Returns a text of each plain value that a function closes over, has as a default, or holds as an object."""
    values = list(getattr(function, "__defaults__", None) or ())
    for cell in getattr(function, "__closure__", None) or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # a name that has no value yet
            continue
    if not inspect.isroutine(function):
        values += [value for _, value in sorted(vars(function).items())] if hasattr(function, "__dict__") else []
    return [repr(value) for value in values if _is_plain(value)]


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)
