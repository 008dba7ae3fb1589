"""What a comparison of devices leaves: tables and sentences in the terminal, a results file and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.devices_judgement import (
    Advantage,
    Comparison,
    advantages,
    compare,
    cost_text,
    recommend,
    seconds_text,
)
from benchmarks.devices_options import Request
from benchmarks.devices_rows import Row
from benchmarks.experiments import Case, Experiment
from profiles import provenance, report
from profiles.results import to_json, write_atomically
from profiles.telemetry import Trace

RESULTS, REPORT = "results.json", "report.html"
# The second table's columns.
EFFORTS = ("device", "CPU", "GPU", "MFLOP/img", "GFLOP/s", "peak%", "model%", "memory%")
LEGEND = {
    "img/s": "trained a second, in steady steps",
    "model": "the model alone, on a batch that lies on the device",
    "load%": "share of an epoch that is loading",
    "predict": "predicted a second, from a batch on the device",
    "epoch": "one pass over all the data; * extrapolated",
    "cost": "of an epoch, at the price per hour given",
    "CPU, GPU": "busy in training",
    "MFLOP/img": "of a training step: three times the products of a forward pass",
    "peak%": "of what a large matrix product reached beside it, as it trains; model% for the model alone",
    "memory%": "of what a large copy reached, that the model's tensors ask for at least",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """One experiment's rows, and what they mean."""

    name: str
    experiment: Experiment
    rows: tuple[Row, ...]
    advantages: tuple[Advantage, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def cases(self) -> list[Case]:
        return list(dict.fromkeys(row.case for row in self.rows))

    def of(self, case: Case) -> list[Row]:
        return [row for row in self.rows if row.case == case]

    def sentences(self, case: Case) -> list[str]:
        """Returns what a case comes to."""
        eaten = [one.text for one in self.advantages if one.case == case]
        timed = [f"On {row.device.name}: accuracy {row.reached.text}." for row in self.of(case) if row.reached]
        return [sentence_case(line) for line in (*eaten, *recommend(self.of(case)), *timed)]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.experiment.title,
            "cases": [case.name for case in self.cases],
            "advantages": [one.to_dict() for one in self.advantages],
            "published": [one.to_dict() for one in self.comparisons],
            "sentences": {case.name: self.sentences(case) for case in self.cases},
        }


def findings_of(name: str, experiment: Experiment, rows: Sequence[Row]) -> Findings:
    """Returns what an experiment came to."""
    here = tuple(row for case in experiment.cases for row in rows if row.case == case)
    compared = tuple(one for claim in experiment.claims for one in compare(claim, here))
    return Findings(name=name, experiment=experiment, rows=here, advantages=advantages(here), comparisons=compared)


def sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def backend_notes(rows: Sequence[Row], missing: Sequence[str]) -> list[str]:
    """Returns what must be said of GPUs: on what a figure was measured, and what nobody has tried here.

    Args:
      missing: why a GPU was left out, or was not there.
    """
    measured = {row.backend for row in rows if row.device.kind == "gpu"}
    lines = [f"GPU figures: measured here, with Keras on {name}." for name in sorted(measured)]
    if not measured:
        why = f" ({'; '.join(missing)})" if missing else ""
        lines.append(f"No GPU was measured{why}: what follows says nothing of one.")
    if "tensorflow" not in measured:
        lines.append("TensorFlow on a GPU: not tested by this run.")
    if any(row.device.kind == "emulated" for row in rows):
        lines.append("An emulated accelerator sleeps for as long as its rate says: it computes and learns nothing.")
    return lines


def document(
    request: Request,
    found: Sequence[Findings],
    rows: Sequence[Row],
    *,
    created: str,
    complete: bool,
    backends: dict[str, dict[str, Any]],
    left_out: Sequence[tuple[str, str]],
    notes: Sequence[str],
    dataset: dict[str, Any] | None,
    trace: Trace,
) -> dict[str, Any]:
    """Returns the results file's content."""
    return {
        "schema_version": report.SCHEMA_VERSION,
        "created": created,
        "complete": complete,
        "provenance": {**provenance.machine(), "backends": backends},
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
        "dataset": dataset,
        "notes": list(notes),
        "experiments": [one.to_dict() for one in found],
        "results": [row.to_dict() for row in rows],
        "left_out": [{"who": who, "reason": why} for who, why in left_out],
        "telemetry": trace.to_dict(),
    }


def write(out: Path, content: dict[str, Any], page: str) -> None:
    """Writes both files, each whole or not at all."""
    write_atomically(out / RESULTS, to_json(content))
    write_atomically(out / REPORT, page)


def print_findings(console: Console, found: Findings) -> None:
    """Prints an experiment: rates, what the devices make of themselves, published against measured, what it means."""
    console.print(f"\n[bold]{found.name}[/]: {found.experiment.title}", highlight=False)
    for case in found.cases:
        console.print()
        console.print(_rates(found.of(case), case))
        console.print(_efforts(found.of(case)))
        for line in footnotes(found.of(case)):
            console.print(Text(line, style="dim"))
        for line in found.sentences(case):
            console.print(Text(line))
    if found.comparisons:
        console.print()
        console.print(_published(found.comparisons))


def _table(title: str, *columns: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), title=Text(title, style="bold") if title else None)
    table.title_justify = "left"
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=bool(number))
    return table


def _rates(rows: Sequence[Row], case: Case) -> Table:
    """How fast, how long, and how much of it is loading."""
    table = _table(
        case.name, "device", "img/s", "alone", "load%", "predict", "epoch", f"{rows[0].training_epochs} epochs", "cost"
    )
    for row in rows:
        table.add_row(*rate_cells(row))
    return table


def rate_columns(rows: Sequence[Row]) -> tuple[str, ...]:
    """Returns the first table's columns."""
    return ("device", "img/s", "model", "load%", "predict", "epoch", f"{rows[0].training_epochs} epochs", "cost")


def rate_cells(row: Row) -> tuple[str, ...]:
    """Returns the first table's cells: a * where a duration is extrapolated."""
    return (
        row.device.name,
        rate_text(row.images_per_sec),
        rate_text(row.compute_images_per_sec),
        "-" if row.loading_ratio is None else f"{row.loading_ratio:.0%}",
        rate_text(row.predicted_per_sec),
        seconds_text(row.epoch.seconds) + "*" * bool(row.epoch.extrapolated),
        seconds_text(row.training.seconds) + "*" * bool(row.training.extrapolated),
        "-" if row.cost_per_epoch is None else cost_text(row.cost_per_epoch),
    )


def _efforts(rows: Sequence[Row]) -> Table:
    """What a device does of what it can."""
    table = _table("", *EFFORTS)
    for row in rows:
        table.add_row(*effort_cells(row))
    return table


def effort_cells(row: Row) -> tuple[str, ...]:
    """Returns the second table's cells."""
    use = row.use["train"] if row.result is not None else row.use["epochs"]
    return (
        row.device.name,
        share_text(use.cpu_ratio),
        share_text(use.gpu_ratio),
        "-" if row.flops_per_image is None else f"{row.flops_per_image / 1e6:,.3g}",
        "-" if row.achieved_flops_per_sec is None else f"{row.achieved_flops_per_sec / 1e9:,.3g}",
        share_text(row.peak_ratio),
        share_text(row.compute_peak_ratio),
        share_text(row.bandwidth_ratio),
    )


def rate_text(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def share_text(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1%}" if ratio < 0.1 else f"{ratio:.0%}"


def footnotes(rows: Sequence[Row]) -> list[str]:
    """Returns what a reader must know of these rows."""
    lines: dict[str, None] = {}
    for row in rows:
        for what, duration in (("an epoch", row.epoch), ("training", row.training)):
            if duration.extrapolated:
                lines[f"* {row.device.name}: {what} extrapolated {duration.extrapolated}"] = None
        if row.flops_unknown is not None:
            lines[f"FLOPs not counted: {row.flops_unknown}"] = None
        if row.facts.generated and row.epochs:
            lines[f"{row.facts.data} is made up: an accuracy says nothing of the published data"] = None
        for remark in (*row.facts.notes, *(row.result.flags if row.result is not None else ())):
            lines[f"{row.device.name}: {remark}"] = None
    return list(lines)


def _published(comparisons: Sequence[Comparison]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), title=Text("published, and here", style="bold"), title_justify="left")
    for column in ("published", "on", "here", "on", ""):
        table.add_column(column, overflow="fold")
    for one in comparisons:
        table.add_row(*comparison_cells(one))
    return table


def comparison_cells(one: Comparison) -> tuple[str, ...]:
    figure = one.claim.figure
    on = f"{figure.on}; {figure.when}" if figure.when else figure.on
    return figure.text, on, one.text, one.on or "-", one.note or ""
