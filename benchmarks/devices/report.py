"""The document of a comparison of devices: what follows from it, its page, and what is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from benchmarks.devices.findings import Findings, Swept, backend_notes, findings_of, swept_of
from benchmarks.devices.plan import Asked
from benchmarks.devices.plots import FRAME, bars_of, panels_of
from benchmarks.devices.results import USED, CaseResult, row_of, window_name
from benchmarks.devices.samples import MeasuredCase
from benchmarks.devices.tables import (
    EFFORTS,
    LEGEND,
    SWEPT,
    comparison_cells,
    effort_cells,
    footnotes,
    print_findings,
    print_sweep,
    rate_columns,
    rate_lines,
    sweep_cells,
)
from profiles.machine import unread_gpu
from profiles.report import Document, Kind, html, plots
from profiles.report.document import content_of
from profiles.statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured: cases, devices side by side."""

    cases: tuple[MeasuredCase, ...]


DevicesDocument = Document[Asked, Measurements]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What follows from a document.

    Attributes:
      rows: one for each case and device of which enough was measured.
      findings: what each experiment came to; none where something was swept, which stands for itself.
      sweeps: what each sweep came to.
      notes: what a reader must know of the backends.
    """

    rows: tuple[CaseResult, ...]
    findings: tuple[Findings, ...]
    sweeps: tuple[Swept, ...]
    notes: tuple[str, ...]


def derive(document: DevicesDocument) -> Results:
    """Derives rows from samples, and judges them experiment by experiment."""
    asked, rows = document.plan, _rows(document)
    if asked.sweeps:
        findings: tuple[Findings, ...] = ()
    else:
        every = (findings_of(name, experiment, rows) for name, experiment in asked.chosen.items())
        findings = tuple(some for some in every if some.rows)
    swept = tuple(
        result
        for sweep in asked.sweeps
        for name, experiment in asked.chosen.items()
        for result in swept_of(name, experiment, sweep, rows)
    )
    gpu = next((row.device.name for row in rows if row.device.kind == "gpu"), None)
    missing = [left_out.reason for left_out in document.left_out if left_out.who == "gpu"]
    notes = backend_notes(rows, missing, document.provenance["backends"].get(gpu, {}))
    assert document.telemetry is not None
    notes += unread_gpu((row.device for row in rows), document.telemetry)
    return Results(rows=rows, findings=findings, sweeps=swept, notes=tuple(notes))


def _rows(document: DevicesDocument) -> tuple[CaseResult, ...]:
    cases, asked, trace = document.samples.cases, document.plan, document.telemetry
    assert trace is not None
    canaries_ns = [sample.canary_ns for measured in cases for sample in measured.samples]
    rows = (
        row_of(
            measured,
            [
                peak
                for other in cases
                if other.device == measured.device
                for peak in other.peaks
                if peak.precision == measured.case.precision
            ],
            trace=trace,
            names={window: window_name(window, measured.case, measured.device) for window in USED},
            prices=asked.prices,
            target=asked.target_accuracy,
            typical_canary_ns=median(canaries_ns) if canaries_ns else 1.0,
        )
        for measured in cases
    )
    return tuple(row for row in rows if row is not None)


def _copies(document: DevicesDocument, results: Results) -> dict[str, Any]:
    return {
        "notes": list(results.notes),
        "experiments": [findings.to_dict() for findings in results.findings],
        "sweeps": [swept.to_dict() for swept in results.sweeps],
        "results": [row.to_dict() for row in results.rows],
    }


def _page(document: DevicesDocument, results: Results) -> str:
    environment = html.environment(Path(__file__).parent)
    environment.filters |= {
        "effort_cells": effort_cells,
        "comparison_cells": comparison_cells,
        "point_cells": lambda point: (point.value, *sweep_cells(point.row)),
    }
    assert document.telemetry is not None
    return environment.get_template("devices.html.j2").render(
        document=content_of(document, KIND, results),
        found=results.findings,
        swept=results.sweeps,
        panels=panels_of(results.sweeps),
        frame=FRAME,
        parts=html.PART_COLOURS,
        bars=bars_of,
        rate_columns=rate_columns,
        rate_lines=rate_lines,
        effort_columns=EFFORTS,
        sweep_columns=list(SWEPT),
        footnotes=footnotes,
        legend=LEGEND,
        drawn=plots.graphs_of(document.telemetry),
        machine_frame=plots.FRAME,
    )


def _print(console: Console, document: DevicesDocument, results: Results) -> None:
    if document.dataset is not None:
        console.print(Text(f"photos: {document.dataset['name']}, {document.dataset['images']:,} of them"))
    for line in results.notes:
        console.print(Text(line))
    for findings in results.findings:
        print_findings(console, findings)
    for swept in results.sweeps:
        print_sweep(console, swept)
    console.print()
    for word, meaning in LEGEND.items():
        console.print(Text(f"{word}: {meaning}", style="dim"))
    for left_out in document.left_out:
        console.print(Text.assemble(("left out", "yellow"), f" {left_out.who}: {left_out.reason}"))


def _flat(results: Results) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "case": row.case.name,
            "device": row.device.name,
            "keras_backend": row.backend,
            "images_per_sec": row.images_per_sec,
            "compute_images_per_sec": row.compute_images_per_sec,
            "loading_ratio": row.loading_ratio,
            "predicted_images_per_sec": row.predicted_per_sec,
            "epoch_s": row.epoch.seconds,
            "training_s": row.training.seconds,
            "cost_per_epoch": row.cost_per_epoch,
        }
        for row in results.rows
    ]


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, page=_page, print=_print, rows=_flat)
