"""The two files of a comparison of devices, from what was measured until now: strict JSON with samples, and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from benchmarks.devices.findings import Findings, Swept, backend_notes, findings_of, swept_of
from benchmarks.devices.measure import Run, window_name
from benchmarks.devices.plan import Request
from benchmarks.devices.plots import FRAME, bars_of, panels_of
from benchmarks.devices.results import USED, Row, row_of
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
from benchmarks.lab.backend import unread_gpu
from pipeline import ImageSource
from profiles import provenance
from profiles.machine import Trace
from profiles.report import document as report
from profiles.report import html, plots, to_json, write_atomically
from profiles.statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that a run came to until now.

    Attributes:
      backends: of Keras, by device.
      left_out: (who, why).
      dataset: the photos; None where no case takes any.
    """

    request: Request
    rows: tuple[Row, ...]
    found: tuple[Findings, ...]
    swept: tuple[Swept, ...]
    created: str
    complete: bool
    backends: Mapping[str, Mapping[str, Any]]
    left_out: Sequence[tuple[str, str]]
    notes: Sequence[str]
    dataset: Mapping[str, Any] | None
    trace: Trace

    def document(self) -> dict[str, Any]:
        """Returns the results file's content."""
        request = self.request
        return {
            "schema_version": report.SCHEMA_VERSION,
            "created": self.created,
            "complete": self.complete,
            "provenance": {**provenance.machine(), "backends": {key: dict(one) for key, one in self.backends.items()}},
            "settings": {
                "experiments": list(request.experiments),
                "sweeps": [{"axis": one.axis, "values": list(one.values)} for one in request.sweeps],
                "epochs": request.epochs,
                "rounds": request.rounds,
                "longest_epoch_s": request.longest_epoch_s,
                "target_accuracy": request.target_accuracy,
                "prices_per_hour": dict(request.prices),
                "data": provenance.without_folder(request.data),
            },
            "dataset": None if self.dataset is None else dict(self.dataset),
            "notes": list(self.notes),
            "experiments": [one.to_dict() for one in self.found],
            "sweeps": [one.to_dict() for one in self.swept],
            "results": [row.to_dict() for row in self.rows],
            "left_out": [{"who": who, "reason": why} for who, why in self.left_out],
            "telemetry": self.trace.to_dict(),
        }

    def page(self, document: Mapping[str, Any]) -> str:
        """Renders the page: no scripts, no network."""
        environment = html.environment(Path(__file__).parent)
        environment.filters |= {
            "effort_cells": effort_cells,
            "comparison_cells": comparison_cells,
            "point_cells": lambda point: (point.value, *sweep_cells(point.row)),
        }
        return environment.get_template("devices.html.j2").render(
            document=document,
            found=self.found,
            swept=self.swept,
            panels=panels_of(self.swept),
            frame=FRAME,
            parts=html.PART_COLOURS,
            bars=bars_of,
            rate_columns=rate_columns,
            rate_lines=rate_lines,
            effort_columns=EFFORTS,
            sweep_columns=list(SWEPT),
            footnotes=footnotes,
            legend=LEGEND,
            drawn=plots.graphs_of(self.trace),
            machine_frame=plots.FRAME,
        )

    def write(self) -> None:
        """Writes both files, each whole or not at all."""
        document = self.document()
        write_atomically(self.request.out / report.RESULTS, to_json(document))
        write_atomically(self.request.out / report.REPORT, self.page(document))


class Outcome:
    """What a run came to, so far."""

    def __init__(self, request: Request, source: ImageSource | None, run: Run) -> None:
        self._request = request
        self._source = source
        self._run = run
        self._created = report.now()

    def write(self, *, complete: bool) -> bool:
        """Writes results.json and report.html of what there is; returns whether there is anything."""
        rows = self.rows()
        if not rows:
            return False
        Report(
            request=self._request,
            rows=rows,
            found=self._found(rows),
            swept=self._swept(rows),
            created=self._created,
            complete=complete,
            backends={holder.device.name: holder.backend for holder in self._run.holders},
            left_out=self._left_out(),
            notes=self._notes(rows),
            dataset=None if self._source is None else self._source.to_dict(),
            trace=self._run.recorder.trace,
        ).write()
        return True

    def print(self, console: Console) -> None:
        """Prints all of it."""
        rows = self.rows()
        if self._source is not None:
            console.print(Text(f"photos: {self._source.name}, {self._source.images:,} of them"))
        for line in self._notes(rows):
            console.print(Text(line))
        for one in self._found(rows):
            print_findings(console, one)
        for swept in self._swept(rows):
            print_sweep(console, swept)
        console.print()
        for word, meaning in LEGEND.items():
            console.print(Text(f"{word}: {meaning}", style="dim"))
        for who, why in self._left_out():
            console.print(Text.assemble(("left out", "yellow"), f" {who}: {why}"))

    def rows(self) -> tuple[Row, ...]:
        """Returns a row for each case and device that has one, devices side by side."""
        everything = [one for holder in self._run.holders for one in holder.measured.values()]
        canaries = [sample.canary_ns for one in everything for sample in one.samples]
        trace = self._run.recorder.trace
        found = []
        for case in self._request.cases:
            for holder in self._run.holders:
                if case not in holder.measured:
                    continue
                row = row_of(
                    case,
                    holder.device,
                    holder.measured[case],
                    [one for each in holder.measured.values() for one in each.peaks if one.precision == case.precision],
                    backend=str(holder.backend.get("keras_backend", "unknown")),
                    trace=trace,
                    names={window: window_name(window, case, holder.device) for window in USED},
                    prices=self._request.prices,
                    target=self._request.target_accuracy,
                    typical_canary_ns=median(canaries) if canaries else 1.0,
                )
                found += [row] if row is not None else []
        return tuple(found)

    def _found(self, rows: tuple[Row, ...]) -> tuple[Findings, ...]:
        """Returns what each experiment came to; a sweep stands for itself."""
        if self._request.sweeps:
            return ()
        found = (findings_of(name, experiment, rows) for name, experiment in self._request.experiments.items())
        return tuple(one for one in found if one.rows)

    def _swept(self, rows: tuple[Row, ...]) -> tuple[Swept, ...]:
        return tuple(
            one
            for sweep in self._request.sweeps
            for name, experiment in self._request.experiments.items()
            for one in swept_of(name, experiment, sweep, rows)
        )

    def _notes(self, rows: tuple[Row, ...]) -> list[str]:
        gpu = next((one.backend for one in self._run.holders if one.device.kind == "gpu"), {})
        notes = backend_notes(rows, [one.reason for one in self._run.missing], gpu)
        return [*notes, *unread_gpu((row.device for row in rows), self._run.recorder.trace)]

    def _left_out(self) -> list[tuple[str, str]]:
        return [*self._request.without, *((one.who, one.reason) for one in self._run.left_out)]
