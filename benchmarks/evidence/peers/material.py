"""Prepares what all peers of a run share: the images, a file of decoded images, and a reference survey of each work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unstall.benchmarks.evidence.peers.loaders.work import Job
from unstall.benchmarks.evidence.peers.processes import Launcher
from unstall.benchmarks.evidence.peers.samples import Survey
from unstall.benchmarks.lab.child import OPEN_TIMEOUT_S, Child, images_timeout_s
from unstall.pipeline import ImageSource, PipelineConfig

if TYPE_CHECKING:
    from unstall.benchmarks.evidence.peers.renditions import Renditions

# How many images are compared one by one.
_IDENTITY_IMAGES = 256
# The references, with which the peers' work is compared: for the cold work our own pipeline, which decodes at full size
# and resizes and augments in separate steps; for the prepared works a plain loop.
_REFERENCE = PipelineConfig(loader="tf_data", workers="auto")
_UNAUGMENTED = replace(_REFERENCE, augmentation=None, shuffle_buffer=0)
_DESCRIBED = ("benchmarks.evidence.peers.loaders.described", "described")
_PLAIN = ("benchmarks.evidence.peers.loaders.plain", "prepared")


@dataclass(frozen=True, kw_only=True)
class Material:
    """What all peers of a run share.

    Attributes:
      source: the images.
      sample: the images that are compared one by one.
      plain: the file of the sample's images, not augmented.
      array: the file from which prepared formats are made; "" where only the cold work is measured.
      array_labels: the label of each image in that file.
      references: for each work the survey with which the peers' surveys are compared.
    """

    source: ImageSource
    sample: ImageSource
    plain: str
    array: str = ""
    array_labels: tuple[int, ...] = ()
    references: dict[str, Survey] = field(default_factory=dict)

    @cached_property
    def renditions(self) -> Renditions:
        from unstall.benchmarks.evidence.peers.renditions import Renditions

        return Renditions(self.sample, np.load(self.plain))

    def job(self, work: str, folder: Path) -> Job:
        if work == "cold":
            return _file_job(work, self.source, self.source.labels.tolist(), folder)
        labels = self.array_labels
        return Job(work=work, images=len(labels), labels=labels, array=self.array, folder=str(folder / "whole"))

    def numbered(self, work: str, folder: Path) -> Job:
        """Returns a job that serves the sample, with the numbers of the images as labels."""
        numbers = tuple(range(self.sample.images))
        if work == "cold":
            return _file_job(work, self.sample, numbers, folder)
        return Job(work=work, images=len(numbers), labels=numbers, array=self.plain, folder=str(folder / "sample"))


def _file_job(work: str, source: ImageSource, labels: Sequence[int], folder: Path) -> Job:
    return Job(
        work=work,
        images=source.images,
        labels=tuple(labels),
        paths=tuple(source.paths),
        formats=source.formats,
        jpeg_sizes=tuple((height, width) for height, width in source.jpeg_sizes.tolist()),
        folder=str(folder),
    )


def make_material(
    source: ImageSource, launcher: Launcher, folder: Path, *, works: Sequence[str], least: int
) -> Material:
    """Decodes and resizes the images for prepared formats and for the checks, and surveys the reference of each work.

    Args:
      least: least number of images in a prepared file; the photos are repeated until there are as many.
    Raises:
      JobRefused, ChildDied: if the images cannot be decoded, or a reference cannot be read.
    """
    sample = source.take(_IDENTITY_IMAGES)
    material = Material(source=source, sample=sample, plain=str(folder / "plain.npy"))
    process, own = launcher.start("reference")
    _load(process, _DESCRIBED)
    _collect(process, sample, own / "sample", material.plain)
    if any(work != "cold" for work in works):
        array = str(folder / "whole.npy")
        _collect(process, source, own / "whole", array)
        images = np.load(array)
        rows = np.arange(max(least, len(images))) % len(images)
        np.save(array, images[rows])
        material = replace(material, array=array, array_labels=tuple(source.labels[rows].tolist()))
    for work in works:
        job = material.job(work, own)
        if work == "cold":
            job = replace(job, config=_REFERENCE)
        _load(process, _DESCRIBED if work == "cold" else _PLAIN)
        process.ask("open", job, timeout_s=OPEN_TIMEOUT_S)
        material.references[work] = process.ask("survey", timeout_s=images_timeout_s(job.images))
    launcher.end()
    return material


def _load(process: Child, function: tuple[str, str]) -> None:
    process.ask("load", *function, [], timeout_s=OPEN_TIMEOUT_S)


def _collect(process: Child, source: ImageSource, folder: Path, path: str) -> None:
    job = _file_job("cold", source, source.labels.tolist(), folder)
    process.ask("open", replace(job, config=_UNAUGMENTED), timeout_s=OPEN_TIMEOUT_S)
    process.ask("collect", path, timeout_s=images_timeout_s(source.images))
