"""Derives, prints and renders what fewer bits gain and cost in prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.devices.fewer_bits.plan import Asked
from benchmarks.devices.fewer_bits.samples import MeasuredWay, Measurements
from profiles.report import Document, Kind, html
from profiles.statistics import Interval, geometric_mean, range_cell, ratio_interval

FewerBitsDocument = Document[Asked, Measurements]

COLUMNS = ("way", "int8", "img/s", "to f32", "95 %", "p50", "p99", "right", "off", "MB")
_INT8 = "INT8 x INT8"


@dataclass(frozen=True, slots=True, kw_only=True)
class WayResult:
    """The result of a way to predict.

    Attributes:
      int8_ratio: share of the multiply-adds whose two factors are int8; None where no file states it.
      images_per_sec: geometric mean over the rounds.
      ratio, interval: images/sec over those of float32 by the same library, and the 95 % interval.
      p50_us, p99_us: percentiles of the latency of one image.
      right_ratio: share of the test photos whose class is right.
      lost, gained: test photos that the first way gets right and this one wrong, and the other way round.
      off: the largest difference of an output to that of the first way.
      file_bytes: size of the network's file; None without one.
    """

    way: str
    int8_ratio: float | None
    images_per_sec: float
    ratio: float
    interval: Interval | None
    p50_us: float
    p99_us: float
    right_ratio: float
    lost: int
    gained: int
    off: float
    file_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What is derived from a document; `tested` is the number of test photos."""

    ways: tuple[WayResult, ...]
    tested: int


def derive(document: FewerBitsDocument) -> Results:
    """Derives the result of each way of which a window was measured."""
    ways = [way for way in document.samples.ways if way.windows]
    by_name = {way.way: way for way in ways}
    results = []
    for way in ways:
        library = way.way.split()[0]
        results.append(_result_of(way, by_name.get(f"{library} float32", way), ways[0]))
    return Results(ways=tuple(results), tested=len(ways[0].right) if ways else 0)


def _result_of(way: MeasuredWay, float32: MeasuredWay, first: MeasuredWay) -> WayResult:
    rates = {window.round: window.images_per_sec for window in way.windows}
    others = {window.round: window.images_per_sec for window in float32.windows}
    shared = sorted(rates.keys() & others.keys())
    ratio, interval = ratio_interval([rates[number] for number in shared], [others[number] for number in shared])
    latencies_us = [each for window in way.windows for each in window.latencies_us]
    p50_us, p99_us = np.percentile(latencies_us, (50, 99)).tolist()
    total = sum(way.products.values())
    pairs = list(zip(first.right, way.right, strict=True))
    return WayResult(
        way=way.way,
        int8_ratio=way.products.get(_INT8, 0) / total if total else None,
        images_per_sec=geometric_mean(list(rates.values())),
        ratio=ratio,
        interval=interval,
        p50_us=p50_us,
        p99_us=p99_us,
        right_ratio=way.right.count("1") / len(way.right),
        lost=pairs.count(("1", "0")),
        gained=pairs.count(("0", "1")),
        off=way.off,
        file_bytes=way.file_bytes,
    )


def cells(result: WayResult) -> tuple[str, ...]:
    """Returns a row's cells, for the terminal and for the page; `-` stands for a missing value."""
    return (
        result.way,
        "-" if result.int8_ratio is None else f"{result.int8_ratio:.0%}",
        f"{result.images_per_sec:,.0f}",
        f"{result.ratio:.2f}",
        "-" if result.ratio == 1 else range_cell(result.interval),
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
    if any(result.way.startswith("LiteRT") for result in results.ways):
        lines.append(
            "int8 weights: inputs are rounded to int8 in each call, which the file does not state. LiteRT has no "
            "bfloat16 on the CPU."
        )
    return lines


def _title(document: FewerBitsDocument) -> str:
    asked = document.plan
    threads = f"{asked.threads} thread{'s' if asked.threads > 1 else ''}"
    return f"{asked.model} predicts on {threads}; trained {asked.passes} times on all photos"


def _print(console: Console, document: FewerBitsDocument, results: Results) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "way" else "right", no_wrap=True)
    for result in results.ways:
        table.add_row(*map(Text, cells(result)))
    console.print(Text(_title(document), style="bold"))
    console.print(table)
    for line in sentences(document, results):
        console.print(Text(line, style="dim"))
    for left_out in document.left_out:
        line_out = Text.assemble(("left out", "yellow"), f" {left_out.who}: {left_out.reason}")
        console.print(line_out, soft_wrap=True)


def _page(document: FewerBitsDocument, results: Results) -> str:
    return (
        html.environment(Path(__file__).parent)
        .get_template("fewer_bits.html.j2")
        .render(
            document=document,
            title=_title(document),
            columns=COLUMNS,
            rows=[cells(result) for result in results.ways],
            sentences=sentences(document, results),
        )
    )


def _copies(document: FewerBitsDocument, results: Results) -> dict[str, Any]:
    return {"results": list(_rows(results)), "tested": results.tested}


def _rows(results: Results) -> Sequence[Mapping[str, Any]]:
    return [asdict(result) for result in results.ways]


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows)
