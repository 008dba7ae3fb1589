"""Runs a plan: prepares every subject and compares its pictures, then measures all subjects in rounds."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from rich.console import Console
from rich.progress import Progress, TaskID

from unstall.benchmarks.evidence.augmentation.libraries import REFERENCE_LIBRARY, Subject
from unstall.benchmarks.evidence.augmentation.plan import Asked, Plan
from unstall.benchmarks.evidence.augmentation.samples import MeasuredAugmentation, Measurements
from unstall.benchmarks.evidence.augmentation.workers import (
    SubjectFailed,
    Worker,
    look_for_loop,
    measure,
    peak_memory_bytes,
    picture,
)
from unstall.benchmarks.lab.command import read_files
from unstall.benchmarks.lab.run import LabRun
from unstall.pipeline import ImageSource, SourceError
from unstall.profiles.report import LeftOut

# At most this many photos are served, over and over: more would only fill the CPU's cache with photos.
_MOST_PHOTOS = 64
# Each subject makes pictures of this many photos, which are compared; the first picture is shown.
_PICTURED = 2


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Reads the photos, and gets ready to measure.

    Raises:
      UserError: if the photos are not files.
    """
    # Settings for the measuring processes: TensorFlow uses the CPU and logs little, and albumentations does not ask the
    # package index for a newer release.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    source = read_files(plan.data, progress, errors, skip_list=plan.skip_list).take(_MOST_PHOTOS)
    return Run(plan.asked, source, squares_of(source, plan.asked.image_size), progress)


class Run(LabRun[Asked, Measurements]):
    """Measures what was asked for.

    Args:
      source: the photos.
      images: the middle squares of the photos, (images, side, side, 3) uint8.
    """

    command = "augmentation"

    def __init__(self, asked: Asked, source: ImageSource, images: np.ndarray, progress: Progress) -> None:
        super().__init__(asked, progress, source.to_dict())
        self._images = images
        self._original = png_of(images[0])
        self._one_core = Worker(images, asked.batch_size, cores=1)
        self._all_cores = Worker(images, asked.batch_size, cores=asked.cores)
        self._references: dict[str, np.ndarray] = {}
        self._measured = {subject: MeasuredAugmentation(subject=subject) for subject in asked.subjects}
        self._failures: dict[Subject, str] = {}

    def samples(self) -> Measurements:
        return Measurements(original=self._original, subjects=tuple(self._measured.values()))

    def left_out(self) -> list[LeftOut]:
        return [LeftOut(who=subject.label, reason=why) for subject, why in self._failures.items()]

    def close(self) -> None:
        """Ends the processes that measure."""
        self._one_core.close()
        self._all_cores.close()

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures every subject; a subject that failed is not tried again.

        Args:
          after_round: called after each round, so that the caller can write the document.
        """
        asked = self._asked
        task = self._progress.add_task("", total=len(self._measured) * (1 + asked.rounds))
        for subject in self._measured:
            self._turn(task, subject, self._prepare)
        for round_ in range(asked.rounds):
            for subject in self._measured:
                self._turn(task, subject, self._take_windows, round_)
            after_round()
        self._progress.remove_task(task)

    def _turn(self, task: TaskID, subject: Subject, action: Callable[..., None], *arguments: Any) -> None:
        """Runs an action for a subject that has not failed yet, and keeps the reason if the action fails."""
        self._progress.update(task, description=subject.label, refresh=True)
        if subject not in self._failures:
            try:
                action(subject, *arguments)
            except SubjectFailed as error:
                self._failures[subject] = str(error)
        self._progress.update(task, advance=1, refresh=True)

    def _prepare(self, subject: Subject) -> None:
        """Finds whether the graph has a loop, compares the pictures with the reference's, and measures the memory."""
        self._keep(subject, graph_loop=self._one_core.ask(look_for_loop, subject))
        images = self._one_core.ask(picture, subject, self._images[:_PICTURED])
        self._keep(
            subject,
            difference_levels=interior_difference(images, self._reference(subject.operation)),
            picture=png_of(np.clip(np.round(images[0]), 0, 255).astype(np.uint8)),
        )
        fresh = Worker(self._images, self._asked.batch_size, cores=self._asked.cores)
        try:
            self._keep(subject, peak_memory_bytes=fresh.ask(peak_memory_bytes, subject))
        finally:
            fresh.close()

    def _reference(self, operation: str) -> np.ndarray:
        """Returns the pictures that the reference library makes of the first photos."""
        if operation not in self._references:
            reference = Subject(operation=operation, library=REFERENCE_LIBRARY, placement="element")
            self._references[operation] = self._one_core.ask(picture, reference, self._images[:_PICTURED])
        return self._references[operation]

    def _take_windows(self, subject: Subject, round_: int) -> None:
        """Takes a window on one core and, where there are more, a window on all of them."""
        for worker in (self._one_core,) if self._asked.cores == 1 else (self._one_core, self._all_cores):
            sample = worker.ask(measure, subject, round_)
            self._keep(subject, samples=(*self._measured[subject].samples, sample))

    def _keep(self, subject: Subject, **values: Any) -> None:
        self._measured[subject] = replace(self._measured[subject], **values)


def squares_of(source: ImageSource, side: int) -> np.ndarray:
    """Returns the middle square of each photo, (images, side, side, 3) uint8.

    Raises:
      SourceError: if a photo cannot be decoded.
    """
    squares = []
    for path in source.paths:
        try:
            with Image.open(path) as image:
                squares.append(np.asarray(ImageOps.fit(image.convert("RGB"), (side, side))))
        except OSError as error:
            raise SourceError(f"{Path(path).name} cannot be decoded: {error}. Remove it.") from error
    return np.stack(squares)


def interior_difference(image: np.ndarray, reference: np.ndarray) -> float:
    """Returns the mean absolute difference of two stacks of images, without an eighth at each edge.

    Args:
      image, reference: (images, side, side, channels).
    Raises:
      ValueError: if their shapes differ.
    """
    if image.shape != reference.shape:
        raise ValueError(f"Images differ in shape. Received: {image.shape} and {reference.shape}.")
    margin = image.shape[1] // 8
    inside = (slice(None), slice(margin, -margin or None), slice(margin, -margin or None))
    return float(np.mean(np.abs(image[inside].astype(np.float64) - reference[inside])))


def png_of(image: np.ndarray) -> str:
    """Returns an image as a PNG in base64.

    Args:
      image: (height, width, 3) uint8.
    """
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")
