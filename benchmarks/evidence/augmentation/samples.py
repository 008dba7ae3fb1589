"""The raw samples of each subject."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.benchmarks.evidence.augmentation.libraries import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One window of a subject.

    Attributes:
      round: number of the round, from 0.
      cores: number of cores that the process had, and of its parallel calls: 1, or all.
      images: number of images made in the window.
      wall_ns, cpu_ns: the window's duration; CPU time of all threads of the process.
      others_cpu_ns: CPU time of other processes meanwhile, on the cores that this one may use, in ticks of 10 ms.
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
      graph_loop: whether the subject's graph has a loop; None for a library without a graph, or if the subject failed
        before the graph was read.
      peak_memory_bytes: None where it was not measured.
      samples: windows on one core, and on all cores.
    """

    subject: Subject
    graph_loop: bool | None = None
    peak_memory_bytes: int | None = None
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured of all subjects, in the order of the table."""

    subjects: tuple[MeasuredAugmentation, ...]
