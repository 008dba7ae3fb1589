"""Results as strict JSON, and files that appear whole or not at all."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_atomically(path: Path, text: str) -> None:
    """Writes a file that is whole or not there: beside it, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        # A name that is no UTF-8 must not cost the results.
        with partial.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def to_json(document: Mapping[str, Any]) -> str:
    """Returns strict JSON: a number that is not finite is an error, not `NaN`."""
    return json.dumps(document, allow_nan=False, indent=1) + "\n"
