"""The tuner's child process: what a session does, and the costs of stages, exactness, and a user's own pipeline."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from benchmarks.backend import Refused
from benchmarks.serving import answer, settle
from benchmarks.session import Session, noise_batch
from pipeline.config import PipelineConfig
from pipeline.exactness import Exactness
from pipeline.sources import ImageSource
from pipeline.tuning import Consumer, StageCost, StageKey
from profiles.devices import Device
from profiles.samples import Sample
from profiles.schedule import LOADER_ROUNDS, TRIAL_STEPS, steps_for

if TYPE_CHECKING:
    import numpy as np

    from benchmarks.tune_pipeline import PipelineFacts
    from benchmarks.user_pipeline import UserPipeline


def serve_tuner(connection: Connection, device: Device, source: ImageSource, log: str) -> None:
    """The main function of a child that measures what the tuner asks for, on one device."""
    settle(device, log)
    answer(connection, TuneSession(device, source))


class TuneSession(Session):
    """Answers the tuner's requests beside those of any measurement."""

    def __init__(self, device: Device, source: ImageSource) -> None:
        super().__init__(device, source)
        self._pipeline: UserPipeline | None = None
        self._reference: tuple[PipelineConfig, np.ndarray] | None = None

    def stage_costs(
        self, keys: tuple[StageKey, ...], config: PipelineConfig, model: str
    ) -> tuple[dict[StageKey, StageCost], Consumer]:
        """Measures the stages of a tuner's candidates, and the model that takes their batches."""
        from benchmarks.tune_costs import StageCosts
        from profiles.statistics import median
        from profiles.windows import Windows

        costs = StageCosts(config, self._source).measure(keys)
        batch = noise_batch(config.batch_size, config.image_size)
        windows = Windows(self._models[model], self._device)
        windows.prepare([batch])
        steps = steps_for(windows.resident(batch, steps=TRIAL_STEPS, round_=0))
        samples = [windows.resident(batch, steps=steps, round_=number) for number in range(LOADER_ROUNDS)]
        return costs, Consumer(
            us_per_image=1e6 * median([one.s_per_image for one in samples]),
            cpu_us_per_image=0.0
            if self._device.accelerator
            else 1e6 * median([one.cpu_s_per_image for one in samples]),
        )

    def exactness(self, config: PipelineConfig, reference: PipelineConfig) -> Exactness:
        """Compares the images of two pipelines, with the same draws."""
        from benchmarks.tune_costs import compared_images
        from pipeline.exactness import compare
        from pipeline.loaders import UnavailableError

        try:
            if self._reference is None or self._reference[0] != reference:
                self._reference = reference, compared_images(reference, self._source)
            return compare(compared_images(config, self._source), self._reference[1])
        except UnavailableError as error:
            raise Refused(str(error)) from error

    def seconds_to_prepare(self, config: PipelineConfig) -> float:
        """Times what a pipeline needs before its first epoch, in seconds per image."""
        from benchmarks.tune_costs import seconds_to_prepare

        return seconds_to_prepare(config, self._source)

    def open_pipeline(self, text: str, model: str, memory_limit_bytes: float) -> PipelineFacts:
        """Calls the user's function for a pipeline and builds what could be made of it."""
        from benchmarks.user_pipeline import PipelineError, UserPipeline, call
        from profiles.windows import Windows

        try:
            dataset = call(text)
            windows = Windows(self._models[model], self._device)
            windows.prepare(list(dataset.take(1)))
            self._pipeline = UserPipeline(dataset, windows, memory_limit_bytes)
            return self._pipeline.facts()
        except PipelineError as error:
            raise Refused(str(error)) from error

    def pipeline_window(self, name: str, round_: int) -> Sample:
        """Measures one window of one variant of the user's pipeline."""
        assert self._pipeline is not None
        return self._pipeline.window(name, round_)
