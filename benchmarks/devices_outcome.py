"""Turns what a run has measured until now into rows, findings, the two files and what is printed."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from benchmarks.backend import unread_gpu
from benchmarks.devices_findings import Findings, Swept, backend_notes, findings_of, swept_of
from benchmarks.devices_options import Request
from benchmarks.devices_report import Report
from benchmarks.devices_rows import USED, Row, row_of
from benchmarks.devices_run import Run, window_name
from benchmarks.devices_tables import LEGEND, print_findings, print_sweep
from pipeline.sources import ImageSource
from profiles import report
from profiles.statistics import median


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
