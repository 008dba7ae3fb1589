"""What each stage of a loader costs: plain data, and the checks on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

# The stages' CPU time must account for the loader's within this. Source: the design of this project.
UNEXPLAINED_RATIO = 0.10
# A difference of two runs smaller than this is noise: such a stage costs nothing that could be measured.
LEAST_US = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a loader, in the order in which an image passes through.

    Attributes:
      name: the user's function, or what tf.data or the library calls it ("decode_image", "batch", "PIL.Image.load").
      location: "train.py:42" where the function is known, else None.
      kind: the transformation ("map", "batch") or whose code runs ("OpenCV", "other python").
      python: whether it runs Python code, which holds the interpreter's lock.
      cpu_us_per_image: CPU time, in microseconds per image that reaches the model.
      wait_us_per_image: wall time beyond it with one thing done at a time; None where unknown.
      bytes_per_element: of what the stage yields; None where unknown.
      parallelism: calls at once, as written or as AUTOTUNE chose; None where the stage has none or it is unknown.
      autotuned: whether `parallelism` or `buffer_size` was AUTOTUNE's choice.
      buffer_size: elements that its buffer holds, as written or chosen.
      buffer_fill_ratio: how full that buffer was, on average over the run.
    """

    name: str
    kind: str
    cpu_us_per_image: float
    wait_us_per_image: float | None
    location: str | None = None
    python: bool = False
    bytes_per_element: int | None = None
    parallelism: int | None = None
    autotuned: bool = False
    buffer_size: int | None = None
    buffer_fill_ratio: float | None = None

    @property
    def busy_us_per_image(self) -> float:
        """CPU and waiting together: what an image spends in the stage; noise below zero counts as nothing."""
        return max(self.cpu_us_per_image, 0.0) + max(self.wait_us_per_image or 0.0, 0.0)

    def images_per_sec(self, cores: float) -> float | None:
        """Images per second that `cores` could take through this stage; None where it costs no CPU."""
        return cores * 1e6 / self.cpu_us_per_image if self.cpu_us_per_image >= LEAST_US else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowImage:
    """An image that took long to prepare."""

    name: str
    us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTail:
    """The time to prepare one image, one at a time, over those that were looked at."""

    images: int
    p50_us: float
    p99_us: float
    slowest: tuple[SlowImage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTable:
    """Where a loader's time goes, stage by stage.

    Attributes:
      stages: empty where `reason` says why.
      cores: that this process may use.
      loader_cpu_us_per_image: CPU time of the whole loader as it runs, measured apart; what the stages must sum to.
      effective_parallelism: CPU-seconds over wall of the loader as it runs alone; None where it was not measured.
      workers: threads or processes that were asked for, where the loader is Keras'.
      workers_seen: of those, busy at once at most.
      tail: per-image times; None where single images cannot be told apart.
      rest: what takes CPU time outside the stages, where that is known.
      reason: why there are no stages, or None.
      unavailable: what beside the stages was asked for and is not to be had, a sentence each.
    """

    stages: tuple[Stage, ...]
    cores: float
    loader_cpu_us_per_image: float | None = None
    effective_parallelism: float | None = None
    workers: int | None = None
    workers_seen: int | None = None
    tail: ImageTail | None = None
    rest: str | None = None
    reason: str | None = None
    unavailable: tuple[str, ...] = ()

    @property
    def cpu_us_per_image(self) -> float:
        return sum(stage.cpu_us_per_image for stage in self.stages)

    def share(self, stage: Stage) -> float:
        """Returns the stage's part of an image's time in all stages."""
        total = sum(one.busy_us_per_image for one in self.stages)
        return stage.busy_us_per_image / total if total else 0.0

    @property
    def culprit(self) -> Stage | None:
        """The stage that takes more than half of an image's time; None where none does."""
        return next((stage for stage in self.stages if self.share(stage) > 0.5), None)

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader must doubt."""
        measured = self.loader_cpu_us_per_image
        if not self.stages or not measured:
            return ()
        off = self.cpu_us_per_image / measured - 1
        if abs(off) <= UNEXPLAINED_RATIO:
            return ()
        return (
            f"stages: their CPU time sums to {self.cpu_us_per_image:,.0f} us per image, "
            f"the loader's own is {measured:,.0f} us ({off:+.0%})"
            + (f"; the rest is {self.rest}" if self.rest and off < 0 else ""),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the table for the results file; `stages` in the schema's keys."""
        return {
            "stages": [
                {
                    **asdict(stage),
                    "share": self.share(stage),
                    "images_per_sec": stage.images_per_sec(self.cores),
                }
                for stage in self.stages
            ],
            "loader_cpu_us_per_image": self.loader_cpu_us_per_image,
            "effective_parallelism": self.effective_parallelism,
            "workers": self.workers,
            "workers_seen": self.workers_seen,
            "cores": self.cores,
            "tail": None if self.tail is None else asdict(self.tail),
            "reason": self.reason,
            "flags": [*self.flags, *self.unavailable],
        }


def without_stages(reason: str, *, cores: float) -> StageTable:
    """Returns the table of a loader that cannot be cut, and why."""
    return StageTable(stages=(), cores=cores, reason=reason)


def tail_of(times_us: Sequence[tuple[str, float]], count: int = 5) -> ImageTail:
    """Sums up the times of single images, named; those that took longest first."""
    values = [us for _, us in times_us]
    return ImageTail(
        images=len(values),
        p50_us=float(np.percentile(values, 50)),
        p99_us=float(np.percentile(values, 99)),
        slowest=tuple(SlowImage(name=name, us=us) for name, us in sorted(times_us, key=lambda one: -one[1])[:count]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of source: how often it ran, for how long, and that time's part of its function's."""

    number: int
    source: str
    hits: int
    us: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatedFunction:
    """A function with its lines; times are microseconds over all batches that were read."""

    function: str
    location: str
    total_us: float
    lines: tuple[Line, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
