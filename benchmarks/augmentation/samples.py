"""What is measured of each subject: windows, and what it makes of a photo."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.augmentation.libraries import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One window of a subject.

    Attributes:
      round: from 0.
      cores: that the process had, and its calls in parallel: 1, or all.
      images: made in the window.
      wall_ns, cpu_ns: the window's length; CPU time of the whole process, all its threads.
      others_cpu_ns: what other processes of the machine took meanwhile, in ticks of 10 ms.
    """

    round: int
    cores: int
    images: int
    wall_ns: int
    cpu_ns: int
    others_cpu_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAugmentation:
    """What was measured of one subject so far.

    Attributes:
      graph_loop: whether its graph has a loop; None for a library without a graph, and of a subject that failed before.
      peak_memory_bytes: None where it was not measured.
      difference_levels: mean absolute difference to the reference, of 255, without the edges; None where no picture was
        made.
      picture: the first photo as this subject makes it, a PNG in base64; None where no picture was made.
      samples: of one core and of all.
    """

    subject: Subject
    graph_loop: bool | None = None
    peak_memory_bytes: int | None = None
    difference_levels: float | None = None
    picture: str | None = None
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured of all subjects, in the order of the table.

    Attributes:
      original: the photo of the pictures, as every subject is given it; a PNG in base64.
    """

    original: str
    subjects: tuple[MeasuredAugmentation, ...]
