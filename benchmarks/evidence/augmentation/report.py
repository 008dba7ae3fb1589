"""Renders the document of an augmentation run: a table on the terminal, and a page with the pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unstall.benchmarks.evidence.augmentation.libraries import LIBRARIES, REFERENCE_LIBRARY
from unstall.benchmarks.evidence.augmentation.operations import OPERATIONS
from unstall.benchmarks.evidence.augmentation.plan import Asked
from unstall.benchmarks.evidence.augmentation.results import (
    DIFFERENCE_BOUND,
    AugmentationDocument,
    Result,
    Results,
    derive,
)
from unstall.benchmarks.evidence.augmentation.samples import Measurements
from unstall.profiles.report import Kind, html


def _copies(document: AugmentationDocument, results: Results) -> dict[str, Any]:
    return {"results": [result.to_dict() for result in results.rows], "cautions": list(results.cautions)}


def _page(document: AugmentationDocument, results: Results) -> str:
    """Renders for each operation its pictures and its table."""
    groups: dict[str, list[Result]] = {}
    slowest_us: dict[str, float] = {}
    for result in results.rows:
        name = result.subject.operation
        groups.setdefault(name, []).append(result)
        slowest_us[name] = max(slowest_us.get(name, 0.0), result.cpu_us_per_image or 0.0)
    return html.template(Path(__file__).with_name("augmentation.html.j2")).render(
        document=document,
        groups=groups,
        operations=OPERATIONS,
        libraries=LIBRARIES,
        slowest_us=slowest_us,
        pictures=results.pictures,
        cells=cells,
        microseconds=microseconds,
        bound=DIFFERENCE_BOUND,
        cautions=results.cautions,
    )


def _print(console: Console, document: AugmentationDocument, results: Results) -> None:
    console.print(table(results.rows))
    for line in _legend(document, results):
        console.print(line, style="dim")
    for line in results.cautions:
        console.print(line, style="yellow")


def _rows(results: Results) -> list[Mapping[str, Any]]:
    return [result.to_dict() for result in results.rows if result.cpu_us_per_image is not None]


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows)


def table(rows: Sequence[Result]) -> Table:
    """Returns the table for a terminal of 80 columns."""
    lines = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("operation", "library", "placement"):
        lines.add_column(column)
    for column in ("us", "±", "cores", "loop", "MB", "off"):
        lines.add_column(column, justify="right")
    before = ""
    for result in rows:
        subject = result.subject
        name = "" if subject.operation == before else subject.operation
        before = subject.operation
        lines.add_row(Text(name, style="bold"), subject.library, subject.placement, *cells(result).values())
    return lines


def cells(result: Result) -> dict[str, str]:
    """Returns a row's numbers as text, for the terminal and for the page; `-` stands for a missing number."""
    megabytes = None if result.peak_memory_bytes is None else result.peak_memory_bytes / 1e6
    return {
        "us": "failed" if result.failure is not None else microseconds(result.cpu_us_per_image),
        "spread": _number(result.spread_ratio, ".0%"),
        "cores": _number(result.effective_parallelism, ".1f"),
        "loop": {None: "-", False: "no", True: "yes"}[result.graph_loop],
        "MB": _number(megabytes, ".1f"),
        "off": _number(result.difference_levels, ".1f"),
    }


def microseconds(value: float | None) -> str:
    return _number(value, ",.1f" if value is not None and value < 100 else ",.0f")


def _number(value: float | None, pattern: str) -> str:
    return "-" if value is None else format(value, pattern)


def _legend(document: AugmentationDocument, results: Results) -> list[str]:
    """Returns what the columns of the table mean."""
    asked = document.plan
    lines = [
        f"us: CPU time per image on one core, median of {asked.rounds}, ± the standard deviation of a round; "
        f"uint8 photos in, float32 batches of {asked.batch_size} out, {asked.image_size} px.",
        f"cores: busy with {asked.cores} calls in parallel (in a model: one call with {asked.cores} threads).",
        "loop: in the graph; - has no graph, or Python's loop. MB: how far resident memory peaks above TensorFlow at "
        "rest, batches included, in a process of its own.",
        f"off: mean difference to {LIBRARIES[REFERENCE_LIBRARY].title} with the same draw, in levels of 255; below "
        f"{DIFFERENCE_BOUND:g} they do the same.",
    ]
    if any(result.subject.operation == "none" for result in results.rows):
        lines.append(f"none: {OPERATIONS['none'].text}.")
    return lines
