"""Makes names safe to print, and suggests the name that a user may have meant."""

from __future__ import annotations

import difflib
import os
import typing


def printable(path: str | os.PathLike[str]) -> str:
    """Returns a path that is safe to print: what is not printable UTF-8 is escaped."""
    text = os.fsdecode(path).encode("utf-8", "backslashreplace").decode()
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def did_you_mean(received: str, names: typing.Iterable[str]) -> str:
    """Returns `" Did you mean 'x'?"` for the nearest of `names`, or "" if none is near."""
    nearest = difflib.get_close_matches(received, list(names), n=1, cutoff=0.5)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""
