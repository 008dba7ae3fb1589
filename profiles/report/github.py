"""What a run tells GitHub Actions, where it runs in one: a part of the job's summary page, and annotations.

Sources: GitHub's documents on workflow commands (`::warning file=...,line=...::message`) and GITHUB_STEP_SUMMARY.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from unstall.profiles.report.document import Document, Kind, print_document
from unstall.profiles.report.figures import Figure
from unstall.profiles.results.result import Result
from unstall.profiles.results.verdict import Verdict
from unstall.profiles.text import Terminal

# Columns of the text on the summary page.
_COLUMNS = 100


def tell(console: Console, document: Document[Any, Any], kind: Kind[Any, Any, Any], derived: Any) -> None:
    """Adds what a run prints to the summary page of the job, and prints an annotation for each bad verdict.

    Outside of GitHub Actions nothing happens. A summary page that cannot be written to changes nothing.
    """
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        page = Terminal(width=_COLUMNS, file=io.StringIO())
        print_document(page, document, kind, derived)
        assert isinstance(page.file, io.StringIO)
        with suppress(OSError), Path(summary).open("a", encoding="utf-8") as file:
            file.write(f"### unstall {document.command}\n\n````text\n{page.file.getvalue().strip()}\n````\n\n")
    if kind.figures is not None and _is_in_a_job():
        _print(console, _of_figures(kind.figures(derived)))


def annotate_script(console: Console, verdicts: Sequence[Verdict], script: str) -> None:
    """Prints an annotation on the line of the stage that costs most of the loading of each `fit` or loop.

    Args:
      script: the path of the script, as it was typed.
    """
    if _is_in_a_job():
        _print(console, [line for verdict in verdicts if (line := _of_culprit(verdict.result, script)) is not None])


def _is_in_a_job() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _print(console: Console, lines: Sequence[str]) -> None:
    """Prints each line once, whole."""
    for line in dict.fromkeys(lines):
        console.print(line, soft_wrap=True)


def _of_figures(figures: Sequence[Figure]) -> list[str]:
    return [
        f"::{'error' if figure.judgement == 'failed' else 'warning'} title=unstall::{_escaped(figure.text)}"
        for figure in figures
        if figure.judgement in ("failed", "undecided")
    ]


def _of_culprit(result: Result, script: str) -> str | None:
    stage = None if result.stages is None else result.stages.culprit
    if stage is None or stage.location is None or result.attribution.bound == "compute":
        return None
    file, _, line = stage.location.rpartition(":")
    path = script if Path(script).name == file else file
    loading = max(result.attribution.loading_ratio, 0.0)
    text = f"{loading:.0%} of an epoch is loading, and {stage.name} is most of the loader's time."
    return f"::warning file={_property(path)},line={line},title=unstall::{_escaped(text)}"


def _escaped(text: str) -> str:
    """Returns a text as the message of a workflow command, which ends with its line."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
