"""Made-up measurements of augmentations."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.evidence.documents import document_of
from unstall.benchmarks.evidence.augmentation.libraries import LIBRARIES, Subject
from unstall.benchmarks.evidence.augmentation.operations import OPERATIONS
from unstall.benchmarks.evidence.augmentation.plan import Asked
from unstall.benchmarks.evidence.augmentation.samples import MeasuredAugmentation, Measurements, Sample
from unstall.benchmarks.evidence.augmentation.view import AugmentationDocument


def a_subject(operation: str = "shear", library: str = "opencv", placement: str = "batch") -> Subject:
    return Subject(operation=operation, library=library, placement=placement)


def a_sample(
    *, round_: int = 0, cores: int = 1, wall_ms: float = 10.0, cpu_ms: float = 10.0, others_ms: float = 0.0
) -> Sample:
    return Sample(
        round=round_,
        cores=cores,
        images=100,
        wall_ns=int(wall_ms * 1e6),
        cpu_ns=int(cpu_ms * 1e6),
        others_cpu_ns=int(others_ms * 1e6),
    )


def a_measured(subject: Subject | None = None, **changes: Any) -> MeasuredAugmentation:
    values = {
        "subject": subject or a_subject(),
        "peak_memory_bytes": 12_345_678,
        "samples": (a_sample(), a_sample(cores=2, cpu_ms=18.0)),
    }
    return MeasuredAugmentation(**{**values, **changes})


def a_document(*measured: MeasuredAugmentation, **changes: Any) -> AugmentationDocument:
    """Returns the document of all operations and libraries, unless others are given, of which these were measured."""
    asked = Asked(
        operations=changes.pop("operations", tuple(OPERATIONS)),
        libraries=tuple(LIBRARIES),
        image_size=64,
        batch_size=32,
        rounds=5,
        cores=2,
        data="photos",
    )
    return document_of("augmentation", asked, Measurements(subjects=measured), **changes)
