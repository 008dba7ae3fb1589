"""What a sweep measures: raw samples of each place on each device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unstall.benchmarks.pipeline.sweep.axes import Place
from unstall.benchmarks.pipeline.sweep.plan import Asked
from unstall.profiles.report import Document
from unstall.profiles.results import Subject
from unstall.profiles.samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlace:
    """What was measured at a place on the device of the subject.

    Attributes:
      windows: keys of `Measurements.windows`; places that share a model share the windows of the model alone.
    """

    place: Place
    subject: Subject
    windows: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured at all places, by device, in the order of the plan; each sample once."""

    places: tuple[MeasuredPlace, ...]
    windows: Mapping[str, tuple[Sample, ...]]


SweepDocument = Document[Asked, Measurements]
