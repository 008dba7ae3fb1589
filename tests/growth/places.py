"""What is measured where: places on four axes, and the figures of a process at a place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from unstall.pipeline import PipelineConfig
from unstall.pipeline.config import AUTO
from unstall.profiles.samples import Sample
from unstall.profiles.statistics import median

# What one value of each axis counts, in the plural.
AXES = {"files": "files", "cores": "cores", "batch-size": "images a batch", "image-size": "pixels a side"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number that is measured at each place.

    Attributes:
      unit: the number is printed in this unit.
      per_unit: the size of that unit, in the unit in which the number is kept.
    """

    name: str
    unit: str
    per_unit: float

    def with_unit(self, value: float) -> str:
        """Returns the number in its printed unit, with three digits at least."""
        scaled = value / self.per_unit
        text = f"{scaled:,.0f}" if abs(scaled) >= 100 else f"{scaled:.1f}" if abs(scaled) >= 10 else f"{scaled:.2f}"
        return text if self.name == self.unit else f"{text} {self.unit}"


FIGURES = {
    "images_per_sec": Figure(name="images/sec", unit="images/sec", per_unit=1.0),
    "first_batch_s": Figure(name="first batch", unit="ms", per_unit=1e-3),
    "memory_bytes": Figure(name="memory", unit="MB", per_unit=1e6),
    "listing_s": Figure(name="listing", unit="ms", per_unit=1e-3),
    "listing_again_s": Figure(name="listing again", unit="ms", per_unit=1e-3),
    "build_s": Figure(name="building", unit="ms", per_unit=1e-3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What one process measures.

    Attributes:
      files: the number of files in the list that the process scans and loads.
      cores: the number of cores that the process may use; None for all.
    """

    config: PipelineConfig
    files: int
    cores: int | None = None


def place_at(axis: str, value: int, config: PipelineConfig, files: int) -> Place:
    """Returns the place of a value; `files` is the length of the list for every axis but `files`."""
    if axis == "files":
        return Place(config=config, files=value)
    if axis == "cores":
        # Use as many workers as cores, unless the variant leaves the number of workers to tf.data's tuner.
        config = config if config.workers == AUTO else replace(config, workers=value)
        return Place(config=config, files=files, cores=value)
    changes: dict[str, Any] = {"batch_size": value} if axis == "batch-size" else {"image_size": (value, value)}
    return Place(config=replace(config, **changes), files=files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one process measured at one place in one round.

    Attributes:
      images: the number of images in the list; all files are photos.
      listing_ns: how long the first scan took.
      listing_again_ns: how long another scan took, of files that had not changed.
      build_ns: how long the loader took to build from the list.
      memory_bytes: the most that the process held in resident memory, less what it held before the scan; None where
        the system does not tell.
      first: a few steps of the process's first iterator.
      steady: whole epochs, or the first steps of an epoch, of later iterators.
    """

    round: int
    images: int
    listing_ns: int
    listing_again_ns: int
    build_ns: int
    memory_bytes: int | None
    first: Sample
    steady: Sample

    @property
    def figures(self) -> dict[str, float | None]:
        return {
            "images_per_sec": 1 / self.steady.s_per_image,
            "first_batch_s": median(self.steady.first_batch_ns) / 1e9,
            "memory_bytes": self.memory_bytes,
            "listing_s": self.listing_ns / 1e9,
            "listing_again_s": self.listing_again_ns / 1e9,
            "build_s": self.build_ns / 1e9,
        }
