"""Prints the tables of a comparison of devices in 80 columns; the page has the same cells."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unstall.benchmarks.devices.findings import Comparison, Findings, advantages, cost_text, seconds_text, times
from unstall.benchmarks.devices.results import CaseResult
from unstall.models import MODELS, Training

# The columns of the second table. The first table has a column that is named after the published epochs.
EFFORTS = ("device", "CPU", "GPU", "°C", "W", "MFLOP/img", "GFLOP/s", "peak%", "model%", "mem%")
LEGEND = {
    "img/s": "examples trained a second, over whole epochs",
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


def rate_columns(results: Sequence[CaseResult]) -> tuple[str, ...]:
    """Returns the first table's columns."""
    last = _training_text(results[0].published)
    return ("device", "img/s", "model", "load%", "predict", "epoch", last, "cost", "x cpu")


def _training_text(published: Training) -> str:
    """Returns the length of a training in words: in images if epochs are no passes over the data."""
    if published.images_seen is not None:
        return f"{published.images_seen / 1e6:g}M images"
    return f"{published.epochs} epochs" if published.epochs > 1 else "1 epoch"


def rate_lines(results: Sequence[CaseResult]) -> list[tuple[str, ...]]:
    """Returns the first table's lines; the last cell is the speed-up over the CPU, over whole epochs as they run."""
    faster = {advantage.accelerator.device: times(advantage.train_ratio) for advantage in advantages(results)}
    return [(*rate_cells(result), faster.get(result.device, "-")) for result in results]


def rate_cells(result: CaseResult) -> tuple[str, ...]:
    """Returns the first table's cells without the last: rates, times, and the share of loading."""
    return (
        device_text(result),
        rate_text(result.images_per_sec),
        rate_text(result.compute_images_per_sec),
        share_text(result.loading_ratio),
        rate_text(result.predicted_per_sec),
        seconds_text(result.epoch.seconds) + "*" * bool(result.epoch.extrapolated),
        seconds_text(result.training.seconds) + "*" * bool(result.training.extrapolated),
        "-" if result.cost_per_epoch is None else cost_text(result.cost_per_epoch),
    )


def effort_cells(result: CaseResult) -> tuple[str, ...]:
    """Returns the second table's cells: how busy the device is, and how near to its peak."""
    use = result.use["train" if result.timing is not None else "epochs"]
    gpu = result.device.kind == "gpu"  # otherwise a GPU shows the work of other programs
    return (
        device_text(result),
        share_text(use.cpu_ratio),
        share_text(use.gpu_ratio if gpu else None),
        "-" if use.gpu_celsius is None or not gpu else f"{use.gpu_celsius:.0f}",
        "-" if use.gpu_watts is None or not gpu else f"{use.gpu_watts:.0f}",
        "-" if result.flops_per_image is None else digits_text(result.flops_per_image / 1e6),
        "-" if result.achieved_flops_per_sec is None else digits_text(result.achieved_flops_per_sec / 1e9),
        share_text(result.peak_ratio),
        share_text(result.compute_peak_ratio),
        share_text(result.bandwidth_ratio),
    )


def comparison_cells(comparison: Comparison) -> tuple[str, ...]:
    """Returns the published figure and its device, our figure and our device, and a note."""
    figure = comparison.claim.figure
    on = f"{figure.on}; {figure.when}" if figure.when else figure.on
    return figure.text, on, comparison.text, comparison.on or "-", comparison.note or ""


def device_text(result: CaseResult) -> str:
    """Names a device; a GPU always with the backend on which it was measured."""
    return f"gpu ({result.backend})" if result.device.kind == "gpu" else result.device.name


def rate_text(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def digits_text(number: float) -> str:
    """Returns a number rounded to three digits, without an exponent."""
    return f"{float(f'{number:.3g}'):,.10g}"


def share_text(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1%}" if abs(ratio) < 0.0995 else f"{ratio:.0%}"


def footnotes(results: Sequence[CaseResult]) -> list[str]:
    """Returns what a reader must know of these results."""
    lines: dict[str, None] = {}
    for result in results:
        if result.published.images_seen is not None:
            text = f"{_training_text(result.published)}: as published, {result.published.epochs} epochs of "
            lines[f"{text}{result.published.steps_per_epoch:,} steps of {result.published.batch_size}"] = None
        for what, duration in (("an epoch", result.epoch), ("training", result.training)):
            repeated = duration is not result.epoch and duration.extrapolated == result.epoch.extrapolated
            if duration.extrapolated and not repeated:
                lines[f"* {device_text(result)}: {what}, extrapolated {duration.extrapolated}"] = None
        size = result.device.image_size
        if size is not None and size != MODELS[result.case.model].input_shape[:2]:
            lines[f"{device_text(result)} is a rate for {size[0]}x{size[1]} images"] = None
        if result.flops_unknown is not None:
            lines[f"FLOPs not counted: {result.flops_unknown}"] = None
        if result.facts.generated and result.reached is not None:
            lines[f"{result.facts.data} is made up: its accuracy says nothing of the published data"] = None
        if result.reached is not None:
            lines[f"accuracy is that of {'test' if result.facts.validated else 'training'} data"] = None
        lines |= dict.fromkeys(result.facts.notes)
        flags = result.timing.flags if result.timing is not None else ()
        lines |= {f"{device_text(result)}: {flag}": None for flag in flags}
    return list(lines)


def print_findings(console: Console, findings: Findings) -> None:
    """Prints an experiment: the tables of each case, and the published figures beside ours."""
    console.print(Text.assemble("\n", (findings.name, "bold"), f": {findings.experiment.title}"))
    for case in findings.cases:
        results = findings.of(case)
        console.print()
        console.print(_table(case.name, rate_columns(results), rate_lines(results)))
        console.print(_table("", EFFORTS, [effort_cells(result) for result in results]))
        for line in footnotes(results):
            console.print(Text(line, style="dim"))
        for line in findings.sentences(case):
            console.print(Text(line))
    if findings.comparisons:
        columns = ("published", "on", "here", "on", "")
        console.print()
        lines = [comparison_cells(comparison) for comparison in findings.comparisons]
        console.print(_table("published, and here", columns, lines, words=True))


def _table(title: str, columns: Sequence[str], lines: Sequence[Sequence[str]], *, words: bool = False) -> Table:
    """Returns a table of numbers, or of words that may be folded."""
    table = Table(box=None, padding=(0, 1, 0, 0), title=Text(title, style="bold") if title else None)
    table.title_justify = "left"
    for number, column in enumerate(columns):
        right = number > 0 and not words
        table.add_column(column, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for cells in lines:
        table.add_row(*(Text(cell) for cell in cells))
    return table
