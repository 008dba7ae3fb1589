"""Derives from a document the numbers of each subject, the pictures to show, and cautions about the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unstall.benchmarks.evidence.augmentation.libraries import Subject
from unstall.benchmarks.evidence.augmentation.plan import Asked
from unstall.benchmarks.evidence.augmentation.samples import MeasuredAugmentation, Measurements
from unstall.profiles.report import Document, encode
from unstall.profiles.statistics import median, spread_ratio

# In levels of 255. The libraries' bilinear interpolations differ by less than 1, an operation with a wrong sign by some
# 20.
DIFFERENCE_BOUND = 6.0
# If other processes used more than this fraction of the cores, the results have a caution: subjects could get fewer.
_DISTURBED_RATIO = 0.05

AugmentationDocument = Document[Asked, Measurements]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The numbers of one subject; a number that was not measured is None.

    Attributes:
      cpu_us_per_image: CPU time on one core, the median over the rounds.
      spread_ratio: the relative standard deviation of the CPU time over the rounds.
      wall_us_per_image: time on one core, the median over the rounds.
      effective_parallelism: number of busy cores with as many calls as there are cores, the median over the rounds.
      graph_loop, peak_memory_bytes, difference_levels: as they were measured.
      failure: why the subject has no times.
    """

    subject: Subject
    cpu_us_per_image: float | None
    spread_ratio: float | None
    wall_us_per_image: float | None
    effective_parallelism: float | None
    graph_loop: bool | None
    peak_memory_bytes: int | None
    difference_levels: float | None
    failure: str | None

    @property
    def does_the_same(self) -> bool:
        """Whether the subject's pictures match the reference's; true where there are none."""
        return self.difference_levels is None or self.difference_levels < DIFFERENCE_BOUND

    def to_dict(self) -> dict[str, Any]:
        fields = encode(self)
        return {**fields.pop("subject"), **fields}


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of a run.

    Attributes:
      rows: one for each subject, in the order of the table.
      pictures: by operation, for each library the placement whose pictures differ most from the reference's.
      cautions: sentences that say why a reader should doubt all numbers, or some of them.
    """

    rows: tuple[Result, ...]
    pictures: Mapping[str, tuple[MeasuredAugmentation, ...]]
    cautions: tuple[str, ...]

    @property
    def too_different(self) -> tuple[Result, ...]:
        """The subjects that do not do the same as the reference."""
        return tuple(result for result in self.rows if not result.does_the_same)


def derive(document: AugmentationDocument) -> Results:
    """Derives the numbers of each subject from its samples, the pictures to show, and the cautions."""
    failures = {left_out.who: left_out.reason for left_out in document.left_out}
    subjects = document.samples.subjects
    rows = tuple(_result(measured, failures.get(measured.subject.label)) for measured in subjects)
    return Results(rows=rows, pictures=_pictures(subjects), cautions=tuple(_cautions(document, rows)))


def _result(measured: MeasuredAugmentation, failure: str | None) -> Result:
    alone = [sample for sample in measured.samples if sample.cores == 1 and failure is None]
    together = [sample for sample in measured.samples if sample.cores > 1 and failure is None]
    cpu_us = [sample.cpu_ns / sample.images / 1e3 for sample in alone]
    wall_us = [sample.wall_ns / sample.images / 1e3 for sample in alone]
    return Result(
        subject=measured.subject,
        cpu_us_per_image=median(cpu_us) if alone else None,
        spread_ratio=spread_ratio(cpu_us) if alone else None,
        wall_us_per_image=median(wall_us) if alone else None,
        effective_parallelism=median([sample.cpu_ns / sample.wall_ns for sample in together]) if together else None,
        graph_loop=measured.graph_loop,
        peak_memory_bytes=measured.peak_memory_bytes,
        difference_levels=measured.difference_levels,
        failure=failure,
    )


def _pictures(subjects: Sequence[MeasuredAugmentation]) -> dict[str, tuple[MeasuredAugmentation, ...]]:
    furthest: dict[str, dict[str, MeasuredAugmentation]] = {}
    for measured in subjects:
        if measured.picture is None or measured.difference_levels is None:
            continue
        libraries = furthest.setdefault(measured.subject.operation, {})
        other = libraries.setdefault(measured.subject.library, measured)
        if measured.difference_levels > (other.difference_levels or 0.0):
            libraries[measured.subject.library] = measured
    return {operation: tuple(libraries.values()) for operation, libraries in furthest.items()}


def _cautions(document: AugmentationDocument, rows: Sequence[Result]) -> list[str]:
    cores, others = document.plan.cores, _others_cores(document.samples.subjects)
    cautions = []
    if not document.complete:
        cautions.append("This run was stopped before its end: the numbers are of what was measured until then.")
    if others > _DISTURBED_RATIO * cores:
        cautions.append(
            f"Other processes took {others:.1f} of {cores} cores meanwhile: a row could not get those, and CPU time is "
            "longer beside them."
        )
    cautions += [f"{result.subject.label} failed: {result.failure}." for result in rows if result.failure is not None]
    cautions += [
        f"{result.subject.label} does not do the same: {result.difference_levels:.1f} off."
        for result in rows
        if not result.does_the_same
    ]
    return cautions


def _others_cores(subjects: Sequence[MeasuredAugmentation]) -> float:
    """Returns how many cores other processes took, on average over the windows."""
    samples = [sample for measured in subjects for sample in measured.samples]
    wall_ns = sum(sample.wall_ns for sample in samples)
    return sum(sample.others_cpu_ns for sample in samples) / wall_ns if wall_ns else 0.0
