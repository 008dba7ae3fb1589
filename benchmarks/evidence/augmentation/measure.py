"""Measures what was asked for: the graph and the memory of every subject, then all subjects in rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.evidence.augmentation.libraries import Subject
from unstall.benchmarks.evidence.augmentation.plan import Asked, Plan
from unstall.benchmarks.evidence.augmentation.samples import MeasuredAugmentation, Measurements
from unstall.benchmarks.lab.child import Child, ChildDied, JobRefused, kill_all
from unstall.benchmarks.lab.command import read_files
from unstall.benchmarks.lab.run import LabRun
from unstall.pipeline import ImageSource, SourceError
from unstall.pipeline.cache import remove_scratch, scratch_folder
from unstall.profiles.devices import CPU
from unstall.profiles.report import LeftOut

_SESSION = "benchmarks.evidence.augmentation.child:AugmentationSession"
# At most this many photos are served, over and over: more would only fill the CPU's cache with photos.
_MOST_PHOTOS = 64
# Imports, tracing and a window take seconds; a process that takes longer than this hangs.
_HANG_S = 120.0


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Reads the photos, and gets ready to measure.

    Raises:
      UserError: if the photos are not files.
    """
    source = read_files(plan.data, progress, errors, skip_list=plan.skip_list).take(_MOST_PHOTOS)
    return Run(plan, source, squares_of(source, plan.asked.image_size), progress)


class Run(LabRun[Asked, Measurements]):
    """Measures a plan. The processes that measure exist only while `measure` runs.

    Args:
      source: the photos.
      images: the middle squares of the photos, (images, side, side, 3) uint8.
    """

    command = "augmentation"

    def __init__(self, plan: Plan, source: ImageSource, images: np.ndarray, progress: Progress) -> None:
        super().__init__(plan.asked, progress, source.to_dict())
        self._out, self._images = plan.out, images
        self._measured = {subject: MeasuredAugmentation(subject=subject) for subject in plan.asked.subjects}
        self._failed: dict[Subject, str] = {}
        self._children: dict[int, Child] = {}

    def samples(self) -> Measurements:
        return Measurements(subjects=tuple(self._measured.values()))

    def left_out(self) -> list[LeftOut]:
        return [LeftOut(who=subject.label, reason=why) for subject, why in self._failed.items()]

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures every subject; a subject that failed is not tried again."""
        asked, scratch = self._asked, scratch_folder(self._out.resolve())
        self._log = scratch / "children.log"
        task = self._progress.add_task("", total=len(self._measured) * (1 + asked.rounds))

        def turn(subject: Subject, action: Callable[..., None], *arguments: Any) -> None:
            self._progress.update(task, description=subject.label, refresh=True)
            if subject not in self._failed:
                try:
                    action(subject, *arguments)
                except (ChildDied, JobRefused) as error:
                    self._failed[subject] = str(error)
            self._progress.update(task, advance=1, refresh=True)

        try:
            for subject in self._measured:
                turn(subject, self._prepare)
            for round_ in range(asked.rounds):
                for subject in self._measured:
                    turn(subject, self._take_windows, round_)
                after_round()
        finally:
            kill_all(list(self._children.values()))
            remove_scratch(scratch)

    def _prepare(self, subject: Subject) -> None:
        """Finds whether the graph has a loop, and measures the memory in a process of its own."""
        self._keep(subject, graph_loop=self._ask(1, "loop", subject))
        fresh = self._start(self._asked.cores)
        try:
            self._keep(subject, peak_memory_bytes=fresh.ask("peak_memory_bytes", subject, timeout_s=_HANG_S))
        finally:
            fresh.kill()

    def _take_windows(self, subject: Subject, round_: int) -> None:
        """Takes a window on one core and, where there are more, a window on all of them."""
        for cores in sorted({1, self._asked.cores}):
            sample = self._ask(cores, "window", subject, round_)
            self._keep(subject, samples=(*self._measured[subject].samples, sample))

    def _ask(self, cores: int, method: str, *arguments: Any) -> Any:
        """Asks the process with so many cores; if it died, the next call starts another."""
        if cores not in self._children:
            self._children[cores] = self._start(cores)
        try:
            return self._children[cores].ask(method, *arguments, timeout_s=_HANG_S)
        except ChildDied:
            del self._children[cores]
            raise

    def _start(self, cores: int) -> Child:
        return Child(_SESSION, CPU, self._log, self._images, self._asked.batch_size, cores)

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
