"""The report of the advice on a user's own pipeline: what is printed, and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from benchmarks.tune.own.results import AdviceDocument, Results, derive
from benchmarks.tune.own.samples import AdviceSamples, PipelineFacts
from benchmarks.tune.plan import AdviceAsked
from benchmarks.tune.results import EQUAL_RATIO
from benchmarks.tune.tables import Table, page, print_line, print_table
from profiles.report import Kind
from profiles.statistics import Interval, range_cell, range_text


def _facts(document: AdviceDocument) -> PipelineFacts:
    assert document.samples.facts is not None
    return document.samples.facts


def _table(document: AdviceDocument, results: Results) -> Table:
    rows = sorted(results.results, key=lambda result: result.rate)
    return Table(
        title=f"{document.plan.model} on {document.plan.device.name}",
        columns=("pipeline", "img/s", "of as written", "95 %"),
        rows=tuple(
            (
                result.name + (" *" if result is results.chosen else ""),
                f"{result.rate:,.0f}",
                f"{result.against[0]:.2f}x",
                range_cell(result.against[1]),
            )
            for result in rows
        ),
        chosen=next((number for number, result in enumerate(rows) if result is results.chosen), None),
    )


def _stages(document: AdviceDocument) -> str:
    return f"{document.plan.pipeline}: {', '.join(_facts(document).stages)}"


def _epoch(document: AdviceDocument) -> list[str]:
    """Returns a line that says how many images the rates' epochs have; no line where that is not known."""
    images = _facts(document).epoch_images
    return [] if images is None else [f"img/s: of whole epochs of {images:,.0f} images"]


def _sentences(document: AdviceDocument, results: Results) -> list[str]:
    """Returns the advised change as code, notes, the changes that must not be made, and those that failed."""
    facts, chosen = _facts(document), results.chosen
    if chosen is None:
        sentences = [
            "Nothing that was measured is significantly faster than the pipeline as it is written, "
            f"by {100 * EQUAL_RATIO:g} % or more."
        ]
    else:
        ratio, interval = chosen.again or chosen.against
        again = "; measured again" if chosen.again else ""
        sentences = [f"(*) {ratio:.2f} times as fast ({range_text(interval)}{again}): {chosen.change.code}"]
        if chosen.change.memory_bytes:
            sentences.append(f"Its cache takes {chosen.change.memory_bytes / 1e6:,.0f} MB of memory.")
    return [
        *sentences,
        *facts.notes,
        *(f"refused: {reason}" for reason in facts.refused),
        *(f"could not be measured: {left_out.who}: {left_out.reason}" for left_out in document.left_out),
    ]


def _print(console: Console, document: AdviceDocument, results: Results) -> None:
    print_line(console, _stages(document))
    print_table(console, _table(document, results))
    for line in (*_epoch(document), "", *_sentences(document, results)):
        print_line(console, line)


def _page(document: AdviceDocument, results: Results) -> str:
    limits = document.plan.limits
    facts = {
        "rounds": "each change trains in each round, in an order that is drawn anew",
        "limits": f"{limits.memory_bytes / 1e9:,.1f} GB of memory, {limits.budget_s:g} s of measuring",
        "changes": "; ".join(f"{change.name}: {change.code}" for change in _facts(document).changes),
    }
    sentences = [_stages(document), *_epoch(document), *_sentences(document, results)]
    return page("What could be changed in your pipeline", document, [_table(document, results)], sentences, facts)


def _copies(document: AdviceDocument, results: Results) -> dict[str, Any]:
    return {
        "chosen": results.chosen and results.chosen.name,
        "results": [
            {
                "name": result.name,
                "code": result.change.code,
                "memory_bytes": result.change.memory_bytes,
                "images_per_sec": result.rate,
                "epoch_images_per_sec": result.epoch_images_per_sec,
                "against": _ratio(result.against),
                "again": result.again and _ratio(result.again),
            }
            for result in results.results
        ],
        "sentences": _sentences(document, results),
    }


def _ratio(against: tuple[float, Interval | None]) -> dict[str, Any]:
    return {"ratio": against[0], "ci95": against[1]}


def _flat(results: Results) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "pipeline": result.name,
            "chosen": result is results.chosen,
            "images_per_sec": result.rate,
            "of_as_written": result.against[0],
            "ci95_low": result.against[1] and result.against[1][0],
            "ci95_high": result.against[1] and result.against[1][1],
        }
        for result in results.results
    ]


KIND = Kind(
    plan=AdviceAsked, samples=AdviceSamples, derive=derive, copies=_copies, page=_page, print=_print, rows=_flat
)
