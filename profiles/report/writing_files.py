"""Writes files that are complete or absent, and strict JSON."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_atomically(path: Path, text: str) -> None:
    """Writes a text to a temporary file beside `path` and renames it, so that no reader sees an incomplete file.

    Raises:
      OSError: if the file cannot be written. Then `path` is as before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        # backslashreplace: the text may hold the name of a file that is not valid UTF-8.
        with partial.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def to_json(document: Mapping[str, Any] | Sequence[Any]) -> str:
    """Returns a document, or a list, as strict JSON.

    Raises:
      ValueError: if a number is not finite, instead of writing `NaN`.
    """
    return json.dumps(document, allow_nan=False, indent=1) + "\n"
