"""Prints and renders whether a service pays, what limits it, and what each of its workers spends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from unstall.benchmarks.lab.tables import Table, page, print_end, print_table
from unstall.benchmarks.service.plan import Asked
from unstall.benchmarks.service.results import CAUSES, Results, ServiceDocument, ServiceResult, WorkerResult, derive
from unstall.benchmarks.service.samples import Measurements
from unstall.pipeline.service import NO_SERVICE
from unstall.profiles.report import Kind
from unstall.profiles.statistics import range_cell

COLUMNS = ("batches from", "img/s", "x", "95 %", "wait", "us/img", "ms/MB", "once", "limit")
WORKER_COLUMNS = ("worker", "img/s", "us/img", "ms/MB", "cores", "split wait", "its own us of a core an image")


def _name(service: str) -> str:
    if service == NO_SERVICE:
        return "threads"
    kind, _, number = service.rpartition(":")
    return f"{number} worker{'s' if number != '1' else ''}" if kind == "local" else service


def cells(result: ServiceResult) -> tuple[str, ...]:
    """Returns a row's cells, for the terminal and for the page; `-` stands for a missing value."""
    return (
        _name(result.service),
        f"{result.images_per_sec:,.0f}",
        "-" if result.ratio is None else f"{result.ratio:.2f}",
        "-" if result.service == NO_SERVICE else range_cell(result.interval),
        f"{result.wait_ratio:.0%}",
        f"{result.client_us_per_image:,.0f}",
        "-" if result.client_ms_per_megabyte is None else f"{result.client_ms_per_megabyte:.1f}",
        "-" if not result.cause else "yes" if result.served + result.repaired == result.batches else "no",
        result.cause or "-",
    )


def worker_cells(worker: WorkerResult) -> tuple[str, ...]:
    """Returns a row's cells of the workers' table."""
    return (
        f"{worker.worker}{' (slow)' if worker.slow else ''}",
        f"{worker.images_per_sec:,.0f}",
        f"{worker.cpu_us_per_image:,.0f}",
        f"{worker.cpu_ms_per_megabyte:.1f}",
        f"{worker.busy_ratio:.0%}",
        f"{worker.split_wait_ratio:.0%}",
        ", ".join(f"{stage} {cost:,.0f}" for stage, cost in worker.costs_us.items()) or "-",
    )


def sentences(document: ServiceDocument, results: Results) -> list[str]:
    """Returns the answer: whether a service pays here, what limits it, and what was repaired."""
    lines = []
    services = [result for result in results.subjects if result.cause]
    if services and (best := max(services, key=lambda result: result.images_per_sec)).ratio is not None:
        low, high = best.interval or (0.0, float("inf"))
        verdict = "pays" if low > 1 else "does not pay" if high < 1 else "makes no clear difference"
        lines.append(
            f"{_name(best.service)}: {best.ratio:.2f} times the threads' images/sec: a service {verdict} here."
        )
    for result in services:
        lines.append(f"{_name(result.service)}: {CAUSES[result.cause]}.")
        slow = [worker.worker for worker in result.workers if worker.slow]
        if slow:
            lines.append(f"{_name(result.service)}: slower than the others: {', '.join(slow)}.")
        if result.repaired or result.twice:
            lines.append(
                f"{_name(result.service)}: {result.repaired} of {result.batches} batches were made here because no "
                f"worker sent them; {result.twice} came twice, and were dropped."
            )
    if document.plan.device is None:
        lines.append("Batches were read as fast as they came, so that the consumer always waits.")
    return lines


_LEGEND = (
    "x: over the threads of the consuming process, round by round. us/img, ms/MB: CPU time of that process, or of the "
    "worker. once: each batch exactly once an epoch. cores: CPU time over the time of the worker's cores, which the "
    "workers of a host share."
)


def _title(document: ServiceDocument) -> str:
    asked, images = document.plan, (document.dataset or {}).get("images", 0)
    consumer = f"consumed by {asked.device}" if asked.device else "read as fast as they come"
    return f"Batches of {asked.config.batch_size} from {images:,} images, {consumer}"


def _table(results: Results) -> Table:
    return Table(columns=COLUMNS, rows=[cells(result) for result in results.subjects], words=("limit",))


def _workers(result: ServiceResult) -> Table:
    rows = [worker_cells(worker) for worker in result.workers]
    return Table(title=_name(result.service), columns=WORKER_COLUMNS, rows=rows, words=WORKER_COLUMNS[-1:])


def _print(console: Console, document: ServiceDocument, results: Results) -> None:
    console.print(Text(_title(document), style="bold"))
    print_table(console, _table(results))
    for result in results.subjects:
        if result.workers:
            console.print()
            workers = _workers(result)
            narrow = replace(workers, columns=workers.columns[:-1], rows=[cells[:-1] for cells in workers.rows])
            print_table(console, narrow)
            for worker in result.workers:
                console.print(Text(f"{worker.worker}: {worker_cells(worker)[-1]} us of a core an image", style="dim"))
    console.print()
    print_end(console, document, sentences=sentences(document, results), legend=[_LEGEND])


def _page(document: ServiceDocument, results: Results) -> str:
    return page(
        "Batches from a service",
        document,
        about=_title(document),
        tables=[_table(results), *(_workers(result) for result in results.subjects if result.workers)],
        sentences=sentences(document, results),
        legend=[_LEGEND],
        facts={
            "rounds": f"{document.plan.rounds}; in each of them one window of each subject, in an order that is drawn "
            "anew",
            "window": "whole epochs, at least a second",
            "samples": "results.json holds every window, with the accounts of every worker",
            "photos": document.plan.data,
        },
    )


def _copies(document: ServiceDocument, results: Results) -> dict[str, Any]:
    return {"results": _rows(results)}


def _rows(results: Results) -> Sequence[Mapping[str, Any]]:
    return [result.to_dict() for result in results.subjects]


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows)
