"""The two files of a comparison of devices: strict JSON with raw samples, and a page with graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.devices_findings import Findings, Swept
from benchmarks.devices_graphs import FRAME, bars_of, panels_of
from benchmarks.devices_options import Request
from benchmarks.devices_rows import Row
from benchmarks.devices_tables import (
    EFFORTS,
    LEGEND,
    SWEPT,
    comparison_cells,
    effort_cells,
    footnotes,
    rate_columns,
    rate_lines,
    sweep_cells,
)
from profiles import graphs, html_report, provenance, report
from profiles.results import to_json, write_atomically
from profiles.telemetry import Trace


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
        environment = html_report.environment(Path(__file__).parent / "templates")
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
            parts=html_report.PART_COLOURS,
            bars=bars_of,
            rate_columns=rate_columns,
            rate_lines=rate_lines,
            effort_columns=EFFORTS,
            sweep_columns=list(SWEPT),
            footnotes=footnotes,
            legend=LEGEND,
            drawn=graphs.graphs_of(self.trace),
            machine_frame=graphs.FRAME,
        )

    def write(self) -> None:
        """Writes both files, each whole or not at all."""
        document = self.document()
        write_atomically(self.request.out / report.RESULTS, to_json(document))
        write_atomically(self.request.out / report.REPORT, self.page(document))
