"""The answer of a run for other programs: what its first screen says, its figures and its exit code, as JSON.

docs/answer.schema.json describes it. Within a version of the schema fields are added, never renamed or removed.
"""

from __future__ import annotations

from typing import Any

from unstall.profiles.report.codec import encode
from unstall.profiles.report.document import Document, Kind
from unstall.profiles.report.screen import Screen

ANSWER_VERSION = 1


def answer_of(
    document: Document[Any, Any],
    kind: Kind[Any, Any, Any],
    derived: Any,
    *,
    exit_code: int | None = None,
) -> dict[str, Any]:
    """Returns the answer, ready to be written as JSON.

    Args:
      exit_code: of the run; None where only its document is known.
    """
    screens = () if kind.screens is None else kind.screens(document, derived)
    figures = () if kind.figures is None else kind.figures(derived)
    return {
        "answer_version": ANSWER_VERSION,
        "command": document.command,
        "created": document.created,
        "complete": document.complete,
        "exit_code": exit_code,
        "answers": [_answer(screen) for screen in screens],
        "figures": encode(figures),
    }


def _answer(screen: Screen) -> dict[str, Any]:
    return {
        "about": list(screen.heading),
        "warning": screen.warning,
        "verdict": encode(screen.verdict),
        "why": encode(screen.why),
        "next": encode(screen.next),
    }
