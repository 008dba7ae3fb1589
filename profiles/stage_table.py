"""The table of what each stage of a loader costs: plain data, and the checks on these data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unstall.profiles.machine.mounts import Storage
from unstall.profiles.unit import Unit

# The CPU times of the stages must sum to the loader's CPU time within this ratio. Source: the design of this project.
UNEXPLAINED_RATIO = 0.10
# A smaller difference between two runs is noise, so that a cheaper stage has no measurable cost.
LEAST_US = 2.0
# Kinds of the stages that are of no library.
OTHER_PYTHON, SCRIPTS_OWN = "other python", "the script's own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a loader.

    Attributes:
      name: of the user's function, or of the operation in tf.data or a library ("decode_image", "batch",
        "PIL.Image.load").
      location: "train.py:42" where the function is known, else None.
      kind: the transformation ("map", "batch"), or the library whose code runs ("OpenCV", "other python").
      python: whether the stage runs Python code, which holds the interpreter's lock.
      cpu_us_per_image: CPU time, in microseconds per image that reaches the model.
      wait_us_per_image: wall time less CPU time, without any parallelism; None where unknown.
      bytes_per_element: size of what the stage yields; None where unknown.
      parallelism: calls at once, as written or as AUTOTUNE chose; None where the stage has none or it is unknown.
      autotuned: whether AUTOTUNE chose `parallelism` or `buffer_size`.
      buffer_size: elements that the stage's buffer holds, as written or chosen; None as for `parallelism`.
      buffer_fill_ratio: how full the buffer was, averaged over the run; None where unknown.
      call_us_per_image: what the stage's calls would cost if its function did next to nothing; None where it has none.
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
    call_us_per_image: float | None = None

    @property
    def busy_us_per_image(self) -> float:
        """CPU time and waiting of an image in the stage; a sum below 0 is noise and counts as 0."""
        return max(self.cpu_us_per_image + (self.wait_us_per_image or 0.0), 0.0)

    @property
    def buffer_bytes(self) -> int:
        """What the stage's buffer holds when it is full; 0 where it has none, or its size is not known."""
        return max(self.buffer_size or 0, 0) * (self.bytes_per_element or 0)

    def images_per_sec(self, cores: float) -> float | None:
        """Returns the images per second that `cores` could pass through this stage; None if it costs no CPU time."""
        return cores * 1e6 / self.cpu_us_per_image if self.cpu_us_per_image >= LEAST_US else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowImage:
    """An image that took long to prepare, and its time in microseconds."""

    name: str
    us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTail:
    """Times to prepare single images, one after another: how many were timed, their percentiles, the slowest."""

    images: int
    p50_us: float
    p99_us: float
    slowest: tuple[SlowImage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersLine:
    """A line of the user's code in which a loader spends time, with all that it calls in libraries.

    Attributes:
      location: "dataset.py:31".
      code: what it evaluates then, in short: "self.tokenizer(...)".
      ratio: its part of the time to make a batch.
    """

    location: str
    code: str
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTable:
    """How the time of a loader divides into stages.

    Attributes:
      stages: in the order in which an image passes them; empty where `reason` says why.
      cores: number of cores that this process may use.
      loader_cpu_us_per_image: CPU time of the whole loader as it runs, measured separately. The stages must sum to it.
      effective_parallelism: CPU time over wall time of the loader alone, as it runs; None where it was not measured.
      workers: threads or processes that were asked for, where the loader is Keras'.
      workers_seen: the most of those workers that were busy at once.
      workers_start_s: time until worker processes that start give their first batch, beyond the time to make it; None
        where none start with each epoch.
      epoch_end_s: time of the data's own `on_epoch_end`; None where it has none.
      lines: of the user's code that take most of the time, the most costly first.
      decoded_pixels, wanted_pixels: of a mean image as it is decoded, and as a batch has it; None where not known.
      tail: times of single images; None where they cannot be timed separately.
      storage: that the loader's files lie on; None where no file was seen.
      rest: names what takes CPU time outside the stages; None where unknown.
      reason: why there are no stages; None where there are some.
      unavailable: a sentence for each thing that was asked for beside the stages and could not be measured.
    """

    stages: tuple[Stage, ...] = ()
    cores: float
    loader_cpu_us_per_image: float | None = None
    effective_parallelism: float | None = None
    workers: int | None = None
    workers_seen: int | None = None
    workers_start_s: float | None = None
    epoch_end_s: float | None = None
    lines: tuple[UsersLine, ...] = ()
    decoded_pixels: float | None = None
    wanted_pixels: int | None = None
    tail: ImageTail | None = None
    storage: Storage | None = None
    rest: str | None = None
    reason: str | None = None
    unavailable: tuple[str, ...] = ()

    @property
    def cpu_us_per_image(self) -> float:
        return sum(stage.cpu_us_per_image for stage in self.stages)

    def share(self, stage: Stage) -> float:
        """Returns the stage's part of an image's time in all stages.

        Noise makes the shares of costly stages some points too small, because stages below 0 count as 0 in the sum.
        With their noise in the sum, one disturbed stage made another's share too large by up to 47 points.
        """
        total_us = sum(other.busy_us_per_image for other in self.stages)
        return stage.busy_us_per_image / total_us if total_us else 0.0

    @property
    def culprit(self) -> Stage | None:
        """The stage that takes more than half of an image's time; None where none does."""
        return next((stage for stage in self.stages if self.share(stage) > 0.5), None)

    @property
    def excess_ratio(self) -> float | None:
        """By how much the stages sum to more than the loader; None where they sum to it, or one of them is unknown."""
        if not self.stages or not self.loader_cpu_us_per_image:
            return None
        excess_ratio = self.cpu_us_per_image / self.loader_cpu_us_per_image - 1
        return excess_ratio if abs(excess_ratio) > UNEXPLAINED_RATIO else None

    def remarks(self, unit: Unit) -> tuple[str, ...]:
        """Says that the stages do not sum to the loader, where they do not, and what could not be measured."""
        if self.excess_ratio is None:
            return self.unavailable
        return (
            f"stages: their CPU time sums to {self.cpu_us_per_image:,.0f} us per {unit.noun}, "
            f"the loader's own is {self.loader_cpu_us_per_image:,.0f} us ({self.excess_ratio:+.0%})"
            + (f"; the rest is {self.rest}" if self.rest and self.excess_ratio < 0 else ""),
            *self.unavailable,
        )

    def to_dict(self, unit: Unit) -> dict[str, Any]:
        """Returns the table for the results file; `stages` in the schema's keys.

        Args:
          unit: what the loader's batches hold.
        """
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
            "workers_start_s": self.workers_start_s,
            "epoch_end_s": self.epoch_end_s,
            "users_lines": [asdict(line) for line in self.lines],
            "decoded_pixels": self.decoded_pixels,
            "wanted_pixels": self.wanted_pixels,
            "storage": None if self.storage is None else self.storage.text,
            "tail": None if self.tail is None else asdict(self.tail),
            "reason": self.reason,
            "flags": list(self.remarks(unit)),
        }


def image_name(path: str) -> str:
    """Returns the last two parts of a path, of the file itself where the path is a link to one."""
    if os.path.islink(path):
        path = os.path.realpath(path)
    return "/".join(path.split("/")[-2:])


def tail_of(times_us: Sequence[tuple[str, float]], count: int = 5) -> ImageTail:
    """Sums up the times of single images.

    Args:
      times_us: (name of the image, microseconds), at least one.
      count: how many of the slowest images to name.
    """
    values = [us for _, us in times_us]
    slowest_first = sorted(times_us, key=lambda name_and_us: -name_and_us[1])
    return ImageTail(
        images=len(values),
        p50_us=float(np.percentile(values, 50)),
        p99_us=float(np.percentile(values, 99)),
        slowest=tuple(SlowImage(name=name, us=us) for name, us in slowest_first[:count]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """One line of source: how often it ran, for how many microseconds, and its part of the function's time."""

    number: int
    source: str
    hits: int
    us: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatedFunction:
    """A function and its lines of source; times are in microseconds, over all batches that were read."""

    function: str
    location: str
    total_us: float
    lines: tuple[SourceLine, ...]
