"""Plans what is measured: places on four axes, for each variant. Defines what a fresh process measures there."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unstall.benchmarks.lab.options import UserError, check_least, known_names
from unstall.benchmarks.scaling.parser import _LEAST_FILES, AXES
from unstall.pipeline import VARIANTS, PipelineConfig
from unstall.pipeline.config import AUTO
from unstall.profiles.provenance import usable_cores, without_folder
from unstall.profiles.samples import Sample
from unstall.profiles.statistics import median


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

    @property
    def title(self) -> str:
        return self.name if self.name == self.unit else f"{self.name}, {self.unit}"

    def in_unit(self, value: float) -> str:
        """Returns the number in its printed unit, with three digits at least."""
        scaled = value / self.per_unit
        return f"{scaled:,.0f}" if abs(scaled) >= 100 else f"{scaled:.1f}" if abs(scaled) >= 10 else f"{scaled:.2f}"

    def with_unit(self, value: float) -> str:
        return self.in_unit(value) if self.name == self.unit else f"{self.in_unit(value)} {self.unit}"


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

    variant: str
    config: PipelineConfig
    files: int
    cores: int | None = None

    @property
    def name(self) -> str:
        """Names the place in words; no two places have the same name."""
        cores = "" if self.cores is None else f", {self.cores} cores"
        size = self.config.image_size[0]
        return f"{self.variant}: {self.files:,} files{cores}, batch {self.config.batch_size}, {size} px"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value on an axis, and the place to measure for it. A place on several axes is measured only once."""

    axis: str
    value: int
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is measured. The document of a run keeps all of it.

    Attributes:
      axes: the values of each axis, ascending.
      rounds: how many times each place is measured, in turn.
      files: the number of files in the list for every axis but `files`.
      data: the name of the photos, without folders.
    """

    axes: Mapping[str, tuple[int, ...]]
    variants: Mapping[str, PipelineConfig]
    rounds: int
    files: int
    data: str

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(
            Point(axis=axis, value=value, place=_place(axis, value, variant, config, self.files))
            for axis, values in self.axes.items()
            for value in values
            for variant, config in self.variants.items()
        )

    @property
    def places(self) -> tuple[Place, ...]:
        """The places of all points, each once."""
        return tuple(dict.fromkeys(point.place for point in self.points))


def _place(axis: str, value: int, variant: str, config: PipelineConfig, files: int) -> Place:
    if axis == "files":
        return Place(variant=variant, config=config, files=value)
    if axis == "cores":
        # Use as many workers as cores, unless the variant leaves the number of workers to tf.data's tuner.
        config = config if config.workers == AUTO else replace(config, workers=value)
        return Place(variant=variant, config=config, files=files, cores=value)
    changes: dict[str, Any] = {"batch_size": value} if axis == "batch-size" else {"image_size": (value, value)}
    return Place(variant=variant, config=replace(config, **changes), files=files)


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
    build_ns: int
    memory_bytes: int | None
    first: Sample
    steady: Sample
    listing_again_ns: int | None = None  # documents of earlier versions have none

    @property
    def canary_ns(self) -> int:
        """How long the canary loop took beside the windows: longer if other programs kept the cores busy."""
        return max(self.first.canary_ns, self.steady.canary_ns)

    @property
    def figures(self) -> dict[str, float | None]:
        return {
            "images_per_sec": 1 / self.steady.s_per_image,
            "first_batch_s": median(self.steady.first_batch_ns) / 1e9,
            "memory_bytes": self.memory_bytes,
            "listing_s": self.listing_ns / 1e9,
            "listing_again_s": self.listing_again_ns / 1e9 if self.listing_again_ns else None,
            "build_s": self.build_ns / 1e9,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlace:
    """What was measured at one place; `failure` says why a round is missing."""

    place: Place
    measurements: tuple[Measurement, ...] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured at all places, in their order in the plan."""

    places: tuple[MeasuredPlace, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """A point and what was measured there; `failure` says why a round is missing."""

    point: Point
    measurements: tuple[Measurement, ...] = ()
    failure: str | None = None

    def by_round(self, figure: str) -> dict[int, float]:
        """Returns a figure's number in each round that has one."""
        numbers = {measurement.round: measurement.figures[figure] for measurement in self.measurements}
        return {round_: number for round_, number in numbers.items() if number is not None}

    def summary(self, figure: str) -> tuple[float, float, float] | None:
        """Returns a figure's median over the rounds, its lowest and its highest; None where nothing was measured."""
        numbers = list(self.by_round(figure).values())
        return (median(numbers), min(numbers), max(numbers)) if numbers else None


_BATCH_SIZES = (8, 32, 128, 512)
_IMAGE_SIZES = (32, 64, 128, 256)
# The number of files in the list for the other axes: an epoch has some twenty of the largest batches.
_FILES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run: what is measured, of which photos, and where its files go."""

    asked: Asked
    data: str
    out: Path
    skip_list: Path | None = None


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan:
    """Checks all options that can be checked before anything is opened.

    Raises:
      UserError: if an option is wrong; the message has one line, and suggests the nearest known name if there is one.
    """
    check_least(1, rounds=arguments.rounds)
    check_least(_LEAST_FILES, most_files=arguments.most_files)
    axes = known_names(arguments.axes, "--axes", AXES)
    if "cores" in axes and not hasattr(os, "sched_setaffinity"):
        raise UserError("--axes cores needs a system that binds processes to cores, such as Linux. Give the others.")
    values = {
        "files": files_up_to(arguments.most_files),
        "cores": cores_up_to(int(usable_cores())),
        "batch-size": _BATCH_SIZES,
        "image-size": _IMAGE_SIZES,
    }
    asked = Asked(
        axes={axis: values[axis] for axis in AXES if axis in axes},
        variants={name: VARIANTS[name] for name in known_names(arguments.variants, "--variants", VARIANTS)},
        rounds=arguments.rounds,
        files=_FILES,
        data=without_folder(arguments.data),
    )
    return Plan(asked=asked, data=arguments.data, out=out, skip_list=arguments.skip_list)


def files_up_to(most: int) -> tuple[int, ...]:
    """Returns 1,000, ten times that, and so on up to `most`."""
    values = [_LEAST_FILES]
    while values[-1] * 10 <= most:
        values.append(values[-1] * 10)
    return tuple(values)


def cores_up_to(most: int) -> tuple[int, ...]:
    """Returns the powers of two below `most`, and `most`, at least 1."""
    most = max(1, most)
    return (*(2**power for power in range(most.bit_length()) if 2**power < most), most)
