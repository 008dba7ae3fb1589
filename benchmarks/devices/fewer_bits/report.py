"""Prints and renders what fewer bits gain and cost in prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from unstall.benchmarks.devices.fewer_bits.plan import Asked
from unstall.benchmarks.devices.fewer_bits.results import FewerBitsDocument, Results, WayResult, derive
from unstall.benchmarks.devices.fewer_bits.samples import LITERT, Measurements
from unstall.benchmarks.lab.tables import Table, page, print_end, print_table
from unstall.profiles.report import Kind
from unstall.profiles.statistics import range_cell

COLUMNS = ("way", "int8", "img/s", "to f32", "95 %", "p50", "p99", "right", "off", "MB")


def cells(result: WayResult) -> tuple[str, ...]:
    """Returns a row's cells, for the terminal and for the page; `-` stands for a missing value."""
    return (
        result.way,
        "-" if result.int8_ratio is None else f"{result.int8_ratio:.0%}",
        f"{result.images_per_sec:,.0f}",
        "-" if result.ratio is None else f"{result.ratio:.2f}",
        "-" if result.ratio in (1, None) else range_cell(result.interval),
        f"{result.p50_us:,.0f}",
        f"{result.p99_us:,.0f}",
        f"{result.right_ratio:.1%}",
        f"{result.off:.2g}",
        "-" if result.file_bytes is None else f"{result.file_bytes / 1e6:.2f}",
    )


def sentences(document: FewerBitsDocument, results: Results) -> list[str]:
    """Returns what the columns mean, and how many photos changed sides."""
    asked = document.plan
    changed = [
        f"{result.way} {result.lost} lost, {result.gained} gained"
        for result in results.ways
        if result.lost or result.gained
    ]
    lines = [
        f"Of {results.tested:,} test photos ({document.samples.tested_with}), against float32: "
        f"{'; '.join(changed) if changed else 'none changed sides'}.",
        "int8: share of the multiply-adds with both factors in int8. "
        f"img/s: batches of {asked.batch_size}. to f32: over float32 by the same library, round by round. p50, p99: "
        "latency of one image in us. off: largest difference of an output to TensorFlow's float32.",
    ]
    lines += [f"{way.way}: {way.uncounted}." for way in document.samples.ways if way.uncounted]
    if any(way.runtime == LITERT and way.windows for way in document.samples.ways):
        lines.append(
            "int8 weights: inputs are rounded to int8 in each call, which the file does not state. LiteRT has no "
            "bfloat16 on the CPU."
        )
    return lines


def _title(document: FewerBitsDocument) -> str:
    asked, photos = document.plan, (document.dataset or {}).get("train", {}).get("images", 0)
    threads = f"{asked.threads} thread{'s' if asked.threads > 1 else ''}"
    epochs = f"{asked.passes} epoch{'s' if asked.passes > 1 else ''}"
    trained = f"trained for {epochs} on {photos:,} photos" if asked.passes else "as it was given"
    return f"{asked.model} predicts on {threads}; {trained}"


def _table(results: Results) -> Table:
    return Table(columns=COLUMNS, rows=[cells(result) for result in results.ways])


def _print(console: Console, document: FewerBitsDocument, results: Results) -> None:
    console.print(Text(_title(document), style="bold"))
    print_table(console, _table(results))
    print_end(console, document, legend=sentences(document, results))


def _page(document: FewerBitsDocument, results: Results) -> str:
    return page(
        "Prediction in fewer bits",
        document,
        about=_title(document),
        tables=[_table(results)],
        legend=sentences(document, results),
        facts={
            "rounds": f"{document.plan.rounds}; in each of them one window of each way, in an order that is drawn anew",
            "calibration": "the ranges of int8 come from up to 128 training photos, of all classes",
            "test photos": "at most 2,000, and fewer where they are large",
            "samples": "results.json holds every window and every latency",
            "photos": document.plan.data,
        },
    )


def _copies(document: FewerBitsDocument, results: Results) -> dict[str, Any]:
    return {"results": _rows(results), "tested": results.tested}


def _rows(results: Results) -> Sequence[Mapping[str, Any]]:
    return [result.to_dict() for result in results.ways]


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows)
