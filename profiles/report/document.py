"""The results document, and the two files that it is written as."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profiles.report import html
from profiles.report.write import to_json, write_atomically
from profiles.results.result import Result
from profiles.results.verdict import Verdict

SCHEMA_VERSION = 2

# The two files of a run, in its folder.
RESULTS, REPORT = "results.json", "report.html"


def now() -> str:
    """Returns this moment as a document's `created` holds it."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def document(
    results: Sequence[Mapping[str, Any]],
    verdicts: Sequence[Verdict],
    *,
    created: str,
    complete: bool,
    provenance: Mapping[str, Any],
    settings: Mapping[str, Any],
    dataset: Mapping[str, Any],
    left_out: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Returns the results file's content.

    Args:
      results: each as `Result.to_dict` gives it.
      complete: whether the run came to its end.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "created": created,
        "complete": complete,
        "provenance": dict(provenance),
        "settings": dict(settings),
        "dataset": dict(dataset),
        "results": list(results),
        "left_out": list(left_out),
        "verdicts": [verdict.to_dict() for verdict in verdicts],
    }


def unlisted(kind: str, result: Result | None, name: str) -> dict[str, Any]:
    """Returns the dataset of a document about data whose files nobody listed."""
    images = result.contender.images if result is not None else None
    return {
        "kind": kind,
        "name": name,
        "images": "unknown" if images is None else images,
        "skipped": 0,
        "skipped_files": [],
        "fingerprint": "unknown",
    }


def left_out_row(variant: str, model: str, device: str, reason: str, *, page_cache: str = "warm") -> dict[str, str]:
    """Returns who has no result, and why."""
    return {"variant": variant, "model": model, "device": device, "page_cache": page_cache, "reason": reason}


def write(folder: Path, content: Mapping[str, Any], texts: Mapping[tuple[str, str], list[str]]) -> None:
    """Writes both files, each whole or not at all.

    Args:
      content: from `document`.
      texts: the verdicts' sentences for each (model, device name).
    """
    write_atomically(folder / RESULTS, to_json(content))
    write_atomically(folder / REPORT, html.render(content, texts))
