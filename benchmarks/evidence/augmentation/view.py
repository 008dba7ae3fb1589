"""The table of augmentations: what each costs, by library and place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unstall.benchmarks.evidence.augmentation.plan import Asked
from unstall.benchmarks.evidence.augmentation.samples import MeasuredAugmentation, Measurements
from unstall.benchmarks.evidence.run import View
from unstall.benchmarks.lab.tables import Table
from unstall.profiles.report import Document
from unstall.profiles.statistics import median, spread_ratio

AugmentationDocument = Document[Asked, Measurements]

# If other processes used more than this fraction of the cores, the results have a caution: subjects could get fewer.
_DISTURBED_RATIO = 0.05


def view_of(document: AugmentationDocument) -> View:
    """Returns a row for each subject, which has no times if the subject failed."""
    failed = {left_out.who for left_out in document.left_out}
    subjects = document.samples.subjects
    rows = [row_of(measured, failed=measured.subject.label in failed) for measured in subjects]
    columns = ("operation", "library", "placement", "us", "±", "cores", "loop", "MB")
    cells, before = [], ""
    for row, measured in zip(rows, subjects, strict=True):
        operation = "" if row["operation"] == before else row["operation"]
        before = row["operation"]
        us = "failed" if measured.subject.label in failed else _microseconds(row["cpu_us_per_image"])
        cells.append((operation, row["library"], row["placement"], us, *_others(row)))
    return View(
        tables=[Table(columns=columns, rows=cells, words=("library", "placement"))],
        rows=[row for row in rows if row["cpu_us_per_image"] is not None],
        sentences=_cautions(document),
        notes=_legend(document.plan),
    )


def row_of(measured: MeasuredAugmentation, *, failed: bool) -> dict[str, Any]:
    """Returns the figures of one subject, a number that was not measured as None.

    Returns:
      cpu_us_per_image, wall_us_per_image: on one core, the median over the rounds.
      spread_ratio: the relative standard deviation of the CPU time over the rounds.
      effective_parallelism: number of busy cores with as many calls as there are cores, the median over the rounds.
      graph_loop, peak_memory_bytes: as they were measured.
    """
    alone = [sample for sample in measured.samples if sample.cores == 1 and not failed]
    together = [sample for sample in measured.samples if sample.cores > 1 and not failed]
    cpu_us = [sample.cpu_ns / sample.images / 1e3 for sample in alone]
    wall_us = [sample.wall_ns / sample.images / 1e3 for sample in alone]
    return {
        "operation": measured.subject.operation,
        "library": measured.subject.library,
        "placement": measured.subject.placement,
        "cpu_us_per_image": median(cpu_us) if alone else None,
        "spread_ratio": spread_ratio(cpu_us) if alone else None,
        "wall_us_per_image": median(wall_us) if alone else None,
        "effective_parallelism": median([one.cpu_ns / one.wall_ns for one in together]) if together else None,
        "graph_loop": measured.graph_loop,
        "peak_memory_bytes": measured.peak_memory_bytes,
    }


def _others(row: dict[str, Any]) -> Sequence[str]:
    memory_bytes = row["peak_memory_bytes"]
    return (
        _number(row["spread_ratio"], ".0%"),
        _number(row["effective_parallelism"], ".1f"),
        {None: "-", False: "no", True: "yes"}[row["graph_loop"]],
        _number(None if memory_bytes is None else memory_bytes / 1e6, ".1f"),
    )


def _microseconds(value: float | None) -> str:
    return _number(value, ",.1f" if value is not None and value < 100 else ",.0f")


def _number(value: float | None, pattern: str) -> str:
    return "-" if value is None else format(value, pattern)


def _legend(asked: Asked) -> list[str]:
    """Returns what the columns of the table mean."""
    lines = [
        f"us: CPU time per image on one core, median of {asked.rounds}, ± the standard deviation of a round; "
        f"uint8 photos in, float32 batches of {asked.batch_size} out, {asked.image_size} px.",
        f"cores: busy with {asked.cores} calls in parallel (in a model: one call with {asked.cores} threads).",
        "loop: in the graph; - has no graph, or Python's loop. MB: how far resident memory peaks above TensorFlow at "
        "rest, batches included, in a process of its own.",
    ]
    if "none" in asked.operations:
        lines.append("none: only hands the image over: what every row pays.")
    return lines


def _cautions(document: AugmentationDocument) -> list[str]:
    samples = [sample for measured in document.samples.subjects for sample in measured.samples]
    wall_ns, cores = sum(sample.wall_ns for sample in samples), document.plan.cores
    others = sum(sample.others_cpu_ns for sample in samples) / wall_ns if wall_ns else 0.0
    if others <= _DISTURBED_RATIO * cores:
        return []
    return [
        f"Other processes took {others:.1f} of {cores} cores meanwhile: a row could not get those, and CPU time is "
        "longer while they run."
    ]
