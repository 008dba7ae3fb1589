"""Documents of made-up measurements, and what is printed of them."""

from __future__ import annotations

import io
from typing import Any

from tests.builders import DATASET, PROVENANCE
from unstall.benchmarks.evidence.run import View, print_view
from unstall.profiles.report import Document
from unstall.profiles.text import Terminal


def document_of(command: str, plan: Any, samples: Any, /, **changes: Any) -> Document[Any, Any]:
    """Returns a complete document."""
    values: dict[str, Any] = {
        "command": command,
        "created": "2026-01-02T03:04:05+00:00",
        "complete": True,
        "provenance": PROVENANCE,
        "plan": plan,
        "dataset": DATASET,
        "samples": samples,
    }
    return Document(**(values | changes))


def printed(document: Document[Any, Any], view: View, *, width: int = 80) -> str:
    """Returns what is printed of a document, without spaces at the ends of lines."""
    console = Terminal(file=io.StringIO(), width=width, force_terminal=False)
    print_view(console, document, view)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())
