"""Results as strict JSON, and files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_atomically(path: Path, text: str) -> None:
    """Writes a file that is whole or not there: beside it, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        # A name that is no UTF-8 must not cost the results.
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def to_json(document: Mapping[str, Any]) -> str:
    """Returns strict JSON: a number that is not finite is an error, not `NaN`."""
    return json.dumps(document, allow_nan=False, indent=1) + "\n"
