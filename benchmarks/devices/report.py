"""Derives, prints and renders the document of a comparison of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from unstall.benchmarks.devices.findings import Findings, backend_notes, findings_of
from unstall.benchmarks.devices.plan import Asked
from unstall.benchmarks.devices.plots import bars_of
from unstall.benchmarks.devices.results import USED, CaseResult, case_result_of, window_name
from unstall.benchmarks.devices.samples import MeasuredCase
from unstall.benchmarks.devices.screens import experiment_screen
from unstall.benchmarks.devices.tables import (
    EFFORTS,
    LEGEND,
    comparison_cells,
    effort_cells,
    footnotes,
    print_findings,
    rate_columns,
    rate_lines,
)
from unstall.benchmarks.lab.tables import print_end
from unstall.profiles.machine import unread_gpu
from unstall.profiles.report import Document, Kind, Screen, bars, html, left_out_lines, machine_charts
from unstall.profiles.report.document import content_of
from unstall.profiles.statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured of all cases on all devices."""

    cases: tuple[MeasuredCase, ...]


DevicesDocument = Document[Asked, Measurements]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What is derived from a document.

    Attributes:
      cases: a result for each case and device of which enough was measured.
      findings: the findings of each experiment.
      notes: what a reader must know about the backends.
    """

    cases: tuple[CaseResult, ...]
    findings: tuple[Findings, ...]
    notes: tuple[str, ...]


def derive(document: DevicesDocument) -> Results:
    """Derives the result of each case on each device, and judges the results experiment by experiment."""
    asked, cases = document.plan, _case_results(document)
    every = (findings_of(name, experiment, cases) for name, experiment in asked.chosen.items())
    findings = tuple(experiment for experiment in every if experiment.results)
    gpu = next((case.device.name for case in cases if case.device.kind == "gpu"), None)
    missing = [left_out.reason for left_out in document.left_out if left_out.who == "gpu"]
    notes = backend_notes(cases, missing, document.provenance["backends"].get(gpu, {}))
    assert document.telemetry is not None
    notes += unread_gpu((case.device for case in cases), document.telemetry)
    return Results(cases=cases, findings=findings, notes=tuple(notes))


def _case_results(document: DevicesDocument) -> tuple[CaseResult, ...]:
    cases, asked, trace = document.samples.cases, document.plan, document.telemetry
    assert trace is not None
    canaries_ns = [sample.canary_ns for measured in cases for sample in measured.samples]
    derived = (
        case_result_of(
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
    return tuple(case for case in derived if case is not None)


def _copies(document: DevicesDocument, results: Results) -> dict[str, Any]:
    return {
        "notes": list(results.notes),
        "experiments": [findings.to_dict() for findings in results.findings],
        "results": [case.to_dict() for case in results.cases],
    }


def _page(document: DevicesDocument, results: Results) -> str:
    assert document.telemetry is not None
    return html.template(Path(__file__).with_name("devices.html.j2")).render(
        document=content_of(document, KIND, results),
        findings=results.findings,
        legend_of_parts=bars.legend_of_parts(),
        bars=bars_of,
        rate_columns=rate_columns,
        rate_lines=rate_lines,
        effort_columns=EFFORTS,
        effort_lines=lambda results: [effort_cells(result) for result in results],
        comparison_lines=lambda comparisons: [comparison_cells(comparison) for comparison in comparisons],
        footnotes=footnotes,
        legend=LEGEND,
        machine=machine_charts(document.telemetry),
    )


def _print(console: Console, document: DevicesDocument, results: Results) -> None:
    if document.dataset is not None:
        console.print(Text(f"photos: {document.dataset['name']}, {document.dataset['images']:,} of them"))
    for line in results.notes:
        console.print(Text(line))
    for findings in results.findings:
        print_findings(console, findings)
    console.print()
    print_end(console, document, legend=[f"{word}: {meaning}" for word, meaning in LEGEND.items()])


def screens_of(document: DevicesDocument, results: Results) -> tuple[Screen, ...]:
    """Returns a screen for each experiment."""
    left_out = left_out_lines(document.left_out)
    first, *others = (experiment_screen(findings, results.notes, document) for findings in results.findings)
    return (replace(first, why=(*first.why, *left_out)), *others)


def _flat(results: Results) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "case": result.case.name,
            "device": result.device.name,
            "keras_backend": result.backend,
            "images_per_sec": result.images_per_sec,
            "compute_images_per_sec": result.compute_images_per_sec,
            "loading_ratio": result.loading_ratio,
            "predicted_images_per_sec": result.predicted_per_sec,
            "epoch_s": result.epoch.seconds,
            "training_s": result.training.seconds,
            "cost_per_epoch": result.cost_per_epoch,
        }
        for result in results.cases
    ]


KIND = Kind(
    plan=Asked,
    samples=Measurements,
    derive=derive,
    copies=_copies,
    report=_page,
    print=_print,
    rows=_flat,
    screens=screens_of,
)
