"""What all peers of a run share: the images, and a file of decoded images from which prepared formats are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unstall.benchmarks.evidence.peers.loaders.work import Job
from unstall.benchmarks.evidence.peers.processes import Launcher
from unstall.benchmarks.lab.child import OPEN_TIMEOUT_S, images_timeout_s
from unstall.pipeline import ImageSource, PipelineConfig

_UNAUGMENTED = PipelineConfig(loader="tf_data", workers="auto", augmentation=None, shuffle_buffer=0)


@dataclass(frozen=True, kw_only=True)
class Material:
    """What all peers of a run share.

    Attributes:
      source: the images.
      array: the file from which prepared formats are made; "" where only the cold work is measured.
      array_labels: the label of each image in that file.
    """

    source: ImageSource
    array: str = ""
    array_labels: tuple[int, ...] = ()

    def job(self, work: str, folder: Path) -> Job:
        if work == "cold":
            return file_job(self.source, self.source.labels.tolist(), folder)
        labels = self.array_labels
        return Job(work=work, images=len(labels), labels=labels, array=self.array, folder=str(folder / "whole"))


def file_job(source: ImageSource, labels: Sequence[int], folder: Path) -> Job:
    """Returns the cold work on a source's files, with these labels."""
    return Job(
        work="cold",
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
    """Decodes and resizes the images, if one of the works reads prepared formats.

    Args:
      least: least number of images in a prepared file; the photos are repeated until there are as many.
    Raises:
      JobRefused, ChildDied: if the images cannot be decoded.
    """
    if set(works) == {"cold"}:
        return Material(source=source)
    array = str(folder / "whole.npy")
    decode(source, launcher, array)
    images = np.load(array)
    rows = np.arange(max(least, len(images))) % len(images)
    np.save(array, images[rows])
    return Material(source=source, array=array, array_labels=tuple(source.labels[rows].tolist()))


def decode(source: ImageSource, launcher: Launcher, path: str) -> None:
    """Writes a source's images to a file, (images, 64, 64, 3) uint8, in a process of its own.

    Raises:
      JobRefused, ChildDied: if the images cannot be decoded.
    """
    process, own = launcher.start("")
    process.ask("load", "benchmarks.evidence.peers.loaders.described", "described", [], timeout_s=OPEN_TIMEOUT_S)
    job = replace(file_job(source, source.labels.tolist(), own), config=_UNAUGMENTED)
    process.ask("open", job, timeout_s=OPEN_TIMEOUT_S)
    process.ask("collect", path, timeout_s=images_timeout_s(source.images))
    launcher.end()
