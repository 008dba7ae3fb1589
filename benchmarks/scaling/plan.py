"""What is measured: places on four axes, one for each variant, and what a fresh process came to there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline import PipelineConfig
from pipeline.config import AUTO
from profiles.samples import Sample
from profiles.statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One of the numbers of a place: its name, the unit in which it is shown, and that unit in the number's own."""

    name: str
    unit: str
    per_unit: float

    @property
    def title(self) -> str:
        return self.name if self.name == self.unit else f"{self.name}, {self.unit}"

    def shown(self, value: float) -> str:
        """Returns the number in the unit shown, with three digits at least."""
        scaled = value / self.per_unit
        return f"{scaled:,.0f}" if abs(scaled) >= 100 else f"{scaled:.1f}" if abs(scaled) >= 10 else f"{scaled:.2f}"

    def with_unit(self, value: float) -> str:
        return self.shown(value) if self.name == self.unit else f"{self.shown(value)} {self.unit}"


FIGURES = {
    "images_per_sec": Figure(name="images/sec", unit="images/sec", per_unit=1.0),
    "first_batch_s": Figure(name="first batch", unit="ms", per_unit=1e-3),
    "memory_bytes": Figure(name="memory", unit="MB", per_unit=1e6),
    "listing_s": Figure(name="listing", unit="ms", per_unit=1e-3),
    "build_s": Figure(name="building", unit="ms", per_unit=1e-3),
}
# What one value of each axis counts, in the plural.
AXES = {
    "files": "files",
    "cores": "cores",
    "batch-size": "images a batch",
    "image-size": "pixels a side",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What one process measures.

    Attributes:
      files: in the list that it scans and loads from.
      cores: that it may use; None for all.
    """

    variant: str
    config: PipelineConfig
    files: int
    cores: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A place as a value on an axis; axes share the places at which they cross."""

    axis: str
    value: int
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure.

    Attributes:
      axes: the values of each axis, ascending.
      rounds: times that everything is measured, in turn.
      files: in the list of every axis but `files`.
    """

    axes: Mapping[str, tuple[int, ...]]
    variants: Mapping[str, PipelineConfig]
    rounds: int
    files: int

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(
            Point(axis=axis, value=value, place=_place(axis, value, variant, config, self.files))
            for axis, values in self.axes.items()
            for value in values
            for variant, config in self.variants.items()
        )


def _place(axis: str, value: int, variant: str, config: PipelineConfig, files: int) -> Place:
    if axis == "files":
        return Place(variant=variant, config=config, files=value)
    if axis == "cores":
        # One worker a core; tf.data's tuner finds its own number.
        config = config if config.workers == AUTO else replace(config, workers=value)
        return Place(variant=variant, config=config, files=files, cores=value)
    changes: dict[str, Any] = {"batch_size": value} if axis == "batch-size" else {"image_size": (value, value)}
    return Place(variant=variant, config=replace(config, **changes), files=files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one process came to at one place in one round.

    Attributes:
      images: in the list; as many as there are files, all being photos.
      listing_ns: of the scan.
      build_ns: from the list to a loader that can be iterated.
      memory_bytes: the most that the process held in resident memory, less what it held before the scan; None where
        the system does not tell.
      first: the process' first iterator, a few steps.
      steady: another iterator, or several: whole epochs, or the first steps of one.
    """

    round: int
    images: int
    listing_ns: int
    build_ns: int
    memory_bytes: int | None
    first: Sample
    steady: Sample

    @property
    def canary_ns(self) -> int:
        """The canary loop's time beside the windows: long where the machine did something else."""
        return max(self.first.canary_ns, self.steady.canary_ns)

    @property
    def figures(self) -> dict[str, float | None]:
        return {
            "images_per_sec": 1 / self.steady.s_per_image,
            "first_batch_s": median(self.steady.first_batch_ns) / 1e9,
            "memory_bytes": self.memory_bytes,
            "listing_s": self.listing_ns / 1e9,
            "build_s": self.build_ns / 1e9,
        }

    def to_dict(self) -> dict[str, Any]:
        return {
            "round": self.round,
            "images": self.images,
            "listing_ns": self.listing_ns,
            "build_ns": self.build_ns,
            "memory_bytes": self.memory_bytes,
            "first": self.first.to_dict(),
            "steady": self.steady.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A point and what was measured there; `failure` says why a round of it is missing."""

    point: Point
    measurements: tuple[Measurement, ...] = ()
    failure: str | None = None

    def by_round(self, figure: str) -> dict[int, float]:
        """Returns a figure's number in each round that has one."""
        numbers = {one.round: one.figures[figure] for one in self.measurements}
        return {round_: number for round_, number in numbers.items() if number is not None}

    def summary(self, figure: str) -> tuple[float, float, float] | None:
        """Returns a figure's median over the rounds, its lowest and its highest; None where nothing was measured."""
        numbers = list(self.by_round(figure).values())
        return (median(numbers), min(numbers), max(numbers)) if numbers else None
