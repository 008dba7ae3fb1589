"""What runs in the tuner's child process.

Beside what every session can do: the costs of stages, the comparison of pixels, and the windows of a user's own
pipeline.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.lab.session import Session
from unstall.benchmarks.tune.costs import measure_costs
from unstall.benchmarks.tune.exactness import Exactness, compare
from unstall.benchmarks.tune.own.child import UserPipeline, call
from unstall.pipeline import ImageSource, PipelineConfig, build
from unstall.pipeline.cache import cache_root, remove_scratch, scratch_folder
from unstall.pipeline.cost_model import Consumer, StageCost, StageKey
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.prepared.write import materialize
from unstall.profiles import Device
from unstall.profiles.measure.windows import Windows
from unstall.profiles.remedies import Trial, room_here

# Images, spread over the source, that are read to measure what a prepared copy costs, and to compare pixels.
PREPARED_IMAGES, COMPARED_IMAGES = 256, 128


def compared_images(config: PipelineConfig, source: ImageSource) -> np.ndarray:
    """Returns the first `COMPARED_IMAGES` images of a pipeline's first epoch, in the order of the files."""
    with build(replace(config, shuffle_buffer=0), source.take(COMPARED_IMAGES)) as loader:
        return np.concatenate([images for images, _ in loader.data.as_numpy_iterator()])


class TuneSession(Session):
    """Answers the tuner's requests, and those of every measurement."""

    def __init__(self, device: Device, source: ImageSource) -> None:
        super().__init__(device, source)
        self._pipeline: UserPipeline | None = None
        self._reference: tuple[PipelineConfig, np.ndarray] | None = None

    def stage_costs(
        self, keys: tuple[StageKey, ...], config: PipelineConfig, model: str, images: int
    ) -> tuple[dict[StageKey, StageCost], Consumer]:
        """Measures the stages of the pipelines whose rates are predicted, and the model that consumes their batches.

        Args:
          images: how many are loaded, spread over the source.
        """
        windows = Windows(self._models[model], self._device)
        return measure_costs(keys, windows, config, self._source.take(images))

    def exactness(self, config: PipelineConfig, reference: PipelineConfig) -> Exactness:
        """Compares the images of two pipelines, with the same draws."""
        try:
            if self._reference is None or self._reference[0] != reference:
                self._reference = reference, compared_images(reference, self._source)
            return compare(compared_images(config, self._source), self._reference[1])
        except UnavailableError as error:
            raise Refused(str(error)) from error

    def seconds_to_prepare(self, config: PipelineConfig) -> float:
        """Returns the seconds per image that writing a pipeline's prepared copy, or its cache on disk, takes."""
        source = self._source.take(PREPARED_IMAGES)
        folder = scratch_folder(cache_root())
        try:
            copy = materialize(
                source,
                folder / "copy",
                "raw" if config.cache == "disk" else config.storage,
                config,
                dtype="float32" if config.cache == "disk" else "uint8",
            )
        finally:
            remove_scratch(folder)
        return copy.seconds / source.images

    def open_pipeline(self, text: str, model: str, memory_bytes: float, budget_s: float) -> None:
        """Calls the user's function that returns a pipeline, and gets ready to try remedies for it."""
        windows = Windows(self._models[model], self._device)
        room = replace(room_here(), memory_bytes=memory_bytes)
        self._pipeline = UserPipeline(call(text), windows, room, budget_s)

    def advance_pipeline(self) -> Trial:
        """Measures the next round of the trial, and returns all that was measured so far."""
        assert self._pipeline is not None
        return self._pipeline.advance()

    def change_of_pipeline(self) -> str:
        """Returns a diff that puts the chosen remedies into the user's code."""
        assert self._pipeline is not None
        return self._pipeline.change()
