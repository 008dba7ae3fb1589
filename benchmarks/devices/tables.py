"""The tables of a comparison of devices, for 80 columns; the page shows the same cells."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.devices.findings import Comparison, Findings, Swept, advantages, cost_text, seconds_text, times
from benchmarks.devices.results import CaseResult
from models import MODELS, Training

# The second table's columns; the first one's differ by the epochs that were published.
EFFORTS = ("device", "CPU", "GPU", "°C", "W", "MFLOP/img", "GFLOP/s", "peak%", "model%", "mem%")
SWEPT = ("img/s", "model", "load%", "predict", "epoch", "peak%")
LEGEND = {
    "img/s": "examples trained a second, in steady steps",
    "model": "the model alone, on a batch that lies on the device",
    "load%": "share of an epoch that is loading",
    "predict": "examples predicted a second, from a batch that lies on the device",
    "epoch": "one pass over all the data",
    "cost": "of an epoch, at the price per hour given",
    "x cpu": "speed-up over the CPU, training as it runs, whole epochs",
    "CPU, GPU": "busy while it trains",
    "MFLOP/img": "of a training step: the products of the forward and the backward pass",
    "peak%": "of what a large matrix product reached beside it, as it trains; model%: of the model alone",
    "mem%": "of what a large copy reached, that the tensors of the model alone ask for at least",
    "*": "extrapolated",
}


def rate_columns(rows: Sequence[CaseResult]) -> tuple[str, ...]:
    """Returns the first table's columns."""
    last = _training_text(rows[0].published)
    return ("device", "img/s", "model", "load%", "predict", "epoch", last, "cost", "x cpu")


def _training_text(published: Training) -> str:
    """Returns the length of a training: in images where epochs are no passes over the data."""
    if published.images_seen is not None:
        return f"{published.images_seen / 1e6:g}M images"
    return f"{published.epochs} epochs" if published.epochs > 1 else "1 epoch"


def rate_lines(rows: Sequence[CaseResult]) -> list[tuple[str, ...]]:
    """Returns the first table's lines; the last cell is the speed-up over the CPU, over whole epochs as they run."""
    faster = {one.accelerator.device: times(one.train_ratio) for one in advantages(rows)}
    return [(*rate_cells(row), faster.get(row.device, "-")) for row in rows]


def rate_cells(row: CaseResult) -> tuple[str, ...]:
    """Returns the first table's cells but the last: how fast, how long, and how much of it is loading."""
    return (
        device_text(row),
        rate_text(row.images_per_sec),
        rate_text(row.compute_images_per_sec),
        share_text(row.loading_ratio),
        rate_text(row.predicted_per_sec),
        seconds_text(row.epoch.seconds) + "*" * bool(row.epoch.extrapolated),
        seconds_text(row.training.seconds) + "*" * bool(row.training.extrapolated),
        "-" if row.cost_per_epoch is None else cost_text(row.cost_per_epoch),
    )


def effort_cells(row: CaseResult) -> tuple[str, ...]:
    """Returns the second table's cells: what a device does of what it can."""
    use = row.use["train" if row.result is not None else "epochs"]
    gpu = row.device.kind == "gpu"  # of somebody else's work on a GPU nothing is said
    return (
        device_text(row),
        share_text(use.cpu_ratio),
        share_text(use.gpu_ratio if gpu else None),
        "-" if use.gpu_celsius is None or not gpu else f"{use.gpu_celsius:.0f}",
        "-" if use.gpu_watts is None or not gpu else f"{use.gpu_watts:.0f}",
        "-" if row.flops_per_image is None else digits_text(row.flops_per_image / 1e6),
        "-" if row.achieved_flops_per_sec is None else digits_text(row.achieved_flops_per_sec / 1e9),
        share_text(row.peak_ratio),
        share_text(row.compute_peak_ratio),
        share_text(row.bandwidth_ratio),
    )


def sweep_cells(row: CaseResult) -> tuple[str, ...]:
    """Returns a sweep's cells, without the value."""
    by_name = dict(zip(rate_columns([row]), rate_cells(row), strict=False))
    return (*(by_name[column] for column in SWEPT[:-1]), share_text(row.peak_ratio))


def comparison_cells(one: Comparison) -> tuple[str, ...]:
    """Returns what was published, on what, what it is here, on what, and what must be known."""
    figure = one.claim.figure
    on = f"{figure.on}; {figure.when}" if figure.when else figure.on
    return figure.text, on, one.text, one.on or "-", one.note or ""


def device_text(row: CaseResult) -> str:
    """Names a device; a GPU never without the backend that it was measured on."""
    return f"gpu ({row.backend})" if row.device.kind == "gpu" else row.device.name


def rate_text(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def digits_text(number: float) -> str:
    """Returns a number with the three digits that it is worth, and no exponent."""
    return f"{float(f'{number:.3g}'):,.10g}"


def share_text(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1%}" if abs(ratio) < 0.0995 else f"{ratio:.0%}"


def footnotes(rows: Sequence[CaseResult]) -> list[str]:
    """Returns what a reader must know of these rows."""
    lines: dict[str, None] = {}
    for row in rows:
        if row.published.images_seen is not None:
            text = f"{_training_text(row.published)}: as published, {row.published.epochs} epochs of "
            lines[f"{text}{row.published.steps_per_epoch:,} steps of {row.published.batch_size}"] = None
        for what, duration in (("an epoch", row.epoch), ("training", row.training)):
            if duration.extrapolated and (duration is row.epoch or duration.extrapolated != row.epoch.extrapolated):
                lines[f"* {device_text(row)}: {what}, extrapolated {duration.extrapolated}"] = None
        size = row.device.image_size
        if size is not None and size != MODELS[row.case.model].input_shape[:2]:
            lines[f"{device_text(row)} is a rate for {size[0]}x{size[1]} images"] = None
        if row.flops_unknown is not None:
            lines[f"FLOPs not counted: {row.flops_unknown}"] = None
        if row.result is None:
            lines[f"{device_text(row)}: img/s are over whole epochs, since steps cannot be seen one by one"] = None
        if row.facts.generated and row.reached is not None:
            lines[f"{row.facts.data} is made up: its accuracy says nothing of the published data"] = None
        if row.reached is not None:
            lines[f"accuracy is that of {'test' if row.facts.validated else 'training'} data"] = None
        lines |= dict.fromkeys(row.facts.notes)
        lines |= {f"{device_text(row)}: {flag}": None for flag in (row.result.flags if row.result is not None else ())}
    return list(lines)


def print_findings(console: Console, found: Findings) -> None:
    """Prints an experiment: what each case came to, and what was published of it."""
    console.print(f"\n[bold]{found.name}[/]: {found.experiment.title}", highlight=False)
    for case in found.cases:
        rows = found.of(case)
        console.print()
        console.print(_table(case.name, rate_columns(rows), rate_lines(rows)))
        console.print(_table("", EFFORTS, [effort_cells(row) for row in rows]))
        for line in footnotes(rows):
            console.print(Text(line, style="dim"))
        for line in found.sentences(case):
            console.print(Text(line))
    if found.comparisons:
        columns = ("published", "on", "here", "on", "")
        console.print()
        console.print(
            _table("published, and here", columns, [comparison_cells(one) for one in found.comparisons], words=True)
        )


def print_sweep(console: Console, swept: Swept) -> None:
    """Prints a sweep of one case on one device."""
    title = f"{swept.experiment}, {swept.base.model}, {swept.label}"
    rows = [(f"{one.value}", *sweep_cells(one.row)) for one in swept.points]
    console.print()
    console.print(_table(title, (swept.axis, *SWEPT), rows))
    for line in footnotes([one.row for one in swept.points]):
        console.print(Text(line, style="dim"))
    for line in swept.sentences:
        console.print(Text(line))


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: bool = False) -> Table:
    """Returns a table of numbers, or of words that may be folded."""
    table = Table(box=None, padding=(0, 1, 0, 0), title=Text(title, style="bold") if title else None)
    table.title_justify = "left"
    for number, column in enumerate(columns):
        right = number > 0 and not words
        table.add_column(column, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
