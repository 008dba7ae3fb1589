"""Prints and renders predictions of pools beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from unstall.benchmarks.lab.tables import Table, page, print_end, print_table
from unstall.benchmarks.scaleout.check.plan import CheckAsked
from unstall.benchmarks.scaleout.check.results import NEAR_RATIO, CheckDocument, CheckResults, PoolResult, derive
from unstall.benchmarks.scaleout.check.samples import CheckSamples
from unstall.profiles.report import Kind
from unstall.profiles.statistics import range_cell

COLUMNS = ("pool", "predicted", "measured", "ratio", "95 %", "device", "limit")


def cells(result: PoolResult) -> tuple[str, ...]:
    return (
        result.name,
        f"{result.predicted.images_per_sec:,.0f}",
        f"{result.images_per_sec:,.0f}",
        f"{result.ratio:.2f}{' !' if result.missed else ''}",
        range_cell(result.interval),
        f"{result.device_ratio:.0%}",
        result.predicted.limit,
    )


def sentences(document: CheckDocument, results: CheckResults) -> list[str]:
    """Returns how many predictions are near, and how the hosts are emulated."""
    near = len(results.pools) - len(results.missed)
    how = (
        "Hosts: cores of this one; links: relays."
        if document.plan.loopback
        else "Hosts: network namespaces with a quota of CPU time each; links: 1 Gbit/s, or 100 where the name says so."
    )
    return [
        f"{near} of {len(results.pools)} predictions are within {NEAR_RATIO:.0%} of what was measured."
        + (f" Not: {', '.join(results.missed)}." if results.missed else ""),
        how,
    ]


_LEGEND = (
    "ratio: predicted over measured images/sec. Predicted from what an image costs on another such host without a "
    "service, measured before each window; sending and receiving from batches of 48 and 96 px, measured once."
)


def _title(document: CheckDocument) -> str:
    images = (document.dataset or {}).get("images", 0)
    return f"Pools, predicted and measured, {images:,} images"


def _table(results: CheckResults) -> Table:
    return Table(columns=COLUMNS, rows=[cells(result) for result in results.pools], words=("limit",))


def _print(console: Console, document: CheckDocument, results: CheckResults) -> None:
    console.print(Text(_title(document), style="bold"))
    print_table(console, _table(results))
    console.print()
    print_end(console, document, sentences=sentences(document, results), legend=[_LEGEND])


def _page(document: CheckDocument, results: CheckResults) -> str:
    return page(
        "Workers on other hosts",
        document,
        about=_title(document),
        tables=[_table(results)],
        sentences=sentences(document, results),
        legend=[_LEGEND],
        facts={
            "samples": "results.json holds every cost that the predictions are made from, and every window",
            "photos": document.plan.data,
        },
    )


def _copies(document: CheckDocument, results: CheckResults) -> dict[str, Any]:
    return {"results": results.pools}


def _rows(results: CheckResults) -> Sequence[Mapping[str, Any]]:
    return [asdict(pool) for pool in results.pools]


KIND = Kind(
    plan=CheckAsked, samples=CheckSamples, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows
)
