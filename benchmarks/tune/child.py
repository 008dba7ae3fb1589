"""What runs in the tuner's child process.

Beside what every session can do: the costs of stages, the comparison of pixels, and the windows of a user's own
pipeline. A stage is measured once and alone, and its cost is used for all pipelines that have the stage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from benchmarks.lab.backend import Refused
from benchmarks.lab.session import Session, noise_batch
from benchmarks.tune.exactness import Exactness, compare
from benchmarks.tune.own.child import PipelineError, UserPipeline, call
from pipeline import ImageSource, PipelineConfig, build
from pipeline.cache import cache_root, remove_scratch, scratch_folder
from pipeline.cost_model import Consumer, StageCost, StageKey
from pipeline.errors import UnavailableError
from pipeline.prepared.write import materialize
from pipeline.stages import augment, output
from profiles import Device
from profiles.measure import LOADER_ROUNDS, TRIAL_STEPS, steps_for
from profiles.measure.windows import Windows
from profiles.provenance import usable_cores
from profiles.remedies import Trial, room_here
from profiles.stages.tf_stages import Drain, serial_options
from profiles.statistics import median

# Images, spread over the source, that are read to measure what a prepared copy costs, and to compare pixels.
PREPARED_IMAGES, COMPARED_IMAGES = 256, 128
# A run of one stage lasts about so many seconds; and how many runs of each are timed.
_RUN_S, _RUNS = 0.1, 3
# Stages that run Python code, whose lock may keep calls from running at once.
_PYTHON = {"opencv", "albumentations", "composed", "raw"}
# The CPU time and the wall time of an element in a run, in microseconds.
_Run: TypeAlias = tuple[float, float]
# Where parallel calls keep fewer cores busy than this part of the number of calls, a lock limits them.
_LOCKED_RATIO = 0.9
# A stage that takes less than this many times the CPU time while all cores are busy is one that they do not slow down.
_CROWDED_RATIO = 1.1


class StageCosts:
    """Measures stages one at a time, in pipelines without any parallelism.

    Args:
      base: gives batch size, image size and augmentation.
      source: the images that are loaded.
    """

    def __init__(self, base: PipelineConfig, source: ImageSource) -> None:
        self._base = replace(
            base, loader="tf_data", shuffle_buffer=0, workers=1, prefetch=0, rewrites=False, autotune=False
        )
        self._shuffle_buffer = base.shuffle_buffer
        self._source = source
        self._calls = max(1, round(usable_cores()))
        self._costs: dict[StageKey, StageCost] = {}

    def measure(self, keys: Iterable[StageKey]) -> dict[StageKey, StageCost]:
        """Measures the stages that `pipeline.cost_model.stages_of` names.

        Returns:
          The costs by stage, without those of stages that this source cannot have, such as decoding of pixels.
        """
        measures = {
            "batch": self._batch,
            "load": self._load,
            "cached": self._cached,
            "composed": self._composed,
            "augment": self._augment,
        }
        # The "batch" stages, the tails of all pipelines, first: other stages can only be measured together with one,
        # and its cost is subtracted.
        for key in sorted(set(keys), key=lambda key: key[0] != "batch"):
            with contextlib.suppress(UnavailableError):
                self._costs[key] = measures[key[0]](key)
        return dict(self._costs)

    def _batch(self, key: StageKey) -> StageCost:
        """Measures the tail of a pipeline, behind its augmentation: batching, and conversion to the output's type."""
        config = replace(self._base, output_dtype=key[2])
        if key[1] == "elements":
            dataset = output.batch(_ready(config).repeat(), config)
        else:
            pixels = np.zeros((config.batch_size, *config.image_size, 3), np.uint8)
            dataset = tf.data.Dataset.from_tensors((pixels, np.zeros(config.batch_size, np.int32))).repeat()
        runs = _runs(output.rescale(dataset, config), serial_options())
        return StageCost(us_per_image=_us(runs, config.batch_size))

    def _load(self, key: StageKey) -> StageCost:
        config = replace(self._base, storage=key[1], decode=_decode(key), augmentation=None)
        if key[1] == "records":  # only with a shuffle buffer are they read from front to back, as in training
            config = replace(config, shuffle_buffer=self._shuffle_buffer)
        return self._built(config, python=key[1] in _PYTHON)

    def _cached(self, key: StageKey) -> StageCost:
        # With the shuffle buffer that follows a cache in memory: its cost is part of every epoch.
        shuffle_buffer = PipelineConfig().shuffle_buffer
        config = replace(self._base, cache=key[1], augmentation=None, shuffle_buffer=shuffle_buffer)
        return self._built(config, python=key[1] == "disk")

    def _composed(self, key: StageKey) -> StageCost:
        config = replace(
            self._base,
            storage=key[1],
            decode=_decode(key),
            resample="composed",
            augment_with="opencv",
            augment_at="batch",
        )
        return self._built(config, python=True)

    def _augment(self, key: StageKey) -> StageCost:
        config = replace(self._base, augment_with=key[1], augment_at=key[2])
        images = 4096

        def drawn(config: PipelineConfig) -> Any:
            dataset = _ready(config).repeat(images)
            if config.augment_at == "batch":
                dataset = output.batch(dataset, config).cache()  # so that only the augmentation is measured
            return augment.augment(dataset, images, config)

        runs = _runs(drawn(config), serial_options())
        per_element = config.batch_size if config.augment_at == "batch" else 1
        cost = StageCost(us_per_image=_us(runs, per_element))
        if self._calls == 1:
            return cost
        several = drawn(replace(config, workers=self._calls))
        return _in_parallel(cost, runs, _runs(several, several.options()), self._calls, python=key[1] in _PYTHON)

    def _built(self, config: PipelineConfig, *, python: bool) -> StageCost:
        """Measures a whole loader, and subtracts the cost of its tail, which was measured before."""
        source = self._source
        tail = self._costs["batch", "batches" if config.composed else "elements", config.output_dtype].us_per_image
        images_per_batch = source.images / -(-source.images // config.batch_size)
        with build(config, source) as loader:
            runs = _runs(loader.data, serial_options())
        cost = StageCost(us_per_image=max(_us(runs, images_per_batch) - tail, 0.01))
        # A cache in memory is read by one thread.
        if self._calls == 1 or config.cache == "memory":
            return cost
        with build(replace(config, workers=self._calls), source) as parallel:
            several = _runs(parallel.data, parallel.data.options())
        apart_us = tail * images_per_batch
        return _in_parallel(cost, runs, several, self._calls, python=python, apart_us=apart_us)


def _decode(key: StageKey) -> str:
    return key[2] if len(key) > 2 else "full"


def _ready(config: PipelineConfig) -> Any:
    """Returns a dataset of one image that needs no loading."""
    image = np.zeros((*config.image_size, 3), np.float32)
    return tf.data.Dataset.from_tensors((image, np.int32(0)))


def _in_parallel(
    cost: StageCost,
    single: Sequence[_Run],
    several: Sequence[_Run],
    calls: int,
    *,
    python: bool,
    apart_us: float = 0.0,
) -> StageCost:
    """Returns the cost of a stage with what its parallel calls showed.

    The busy cores of parallel calls are divided by those of single calls, which ran just before: on a machine that does
    other work, even a single call keeps less than one core busy.

    Args:
      single: runs of single calls.
      several: runs of so many parallel calls as there are cores.
      python: whether the stage runs Python code, whose lock may keep calls from running at once.
      apart_us: CPU time of both runs that is no part of the stage.
    """
    reached = _cores_busy(several) / _cores_busy(single)
    crowded = (_cpu_us(several) - apart_us) / max(_cpu_us(single) - apart_us, 0.01)
    # Calls that wait for a lock, or for the elements that they get, do not keep all cores busy.
    limited = reached < _LOCKED_RATIO * calls
    return replace(
        cost,
        most_calls=max(reached, 1.0) if limited and python else None,
        crowded_factor=crowded if not limited and crowded > _CROWDED_RATIO else 1.0,
    )


def _us(runs: Sequence[_Run], images_per_element: float) -> float:
    """Returns the CPU time of runs without parallelism, in microseconds per image.

    CPU time, because other programs on the machine hardly change it. It leaves out waiting for storage, of which there
    is none: the files are in the page cache.
    """
    return _cpu_us(runs) / images_per_element


def _cpu_us(runs: Sequence[_Run]) -> float:
    return median([cpu_us for cpu_us, _ in runs])


def _cores_busy(runs: Sequence[_Run]) -> float:
    return median([cpu_us / wall_us for cpu_us, wall_us in runs])


def _runs(dataset: Any, options: Any) -> list[_Run]:
    """Times several runs over a dataset."""
    elements = 4
    while True:
        drain = Drain(dataset, elements, options)
        run_us = drain.run()[1] * drain.elements
        if run_us >= _RUN_S * 1e6 / 3 or elements >= 1 << 16:
            break
        # A short run is mostly its beginning, so that more elements take less than in proportion.
        elements = min(max(4 * elements, round(elements * _RUN_S * 1e6 / run_us)), 64 * elements)
    drain = Drain(dataset, max(4, round(elements * _RUN_S * 1e6 / run_us)), options)
    return [drain.run() for _ in range(_RUNS)]


def compared_images(config: PipelineConfig, source: ImageSource) -> np.ndarray:
    """Returns the first `COMPARED_IMAGES` images of a pipeline's first epoch, in the order of the files."""
    with build(replace(config, shuffle_buffer=0), source.take(COMPARED_IMAGES)) as loader:
        return np.concatenate([images for images, _ in loader.data.as_numpy_iterator()])


def seconds_to_prepare(config: PipelineConfig, source: ImageSource) -> float:
    """Returns the seconds per image that writing a pipeline's prepared copy, or its cache on disk, takes."""
    source = source.take(PREPARED_IMAGES)
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
        costs = StageCosts(config, self._source.take(images)).measure(keys)
        batch = noise_batch(config.batch_size, config.image_size)
        windows = Windows(self._models[model], self._device)
        windows.prepare([batch])
        steps = steps_for(windows.resident(batch, steps=TRIAL_STEPS, round_=0))
        # On a GPU the time of a step includes the way of a float32 batch from the host: too much for uint8, and for
        # batches that TensorFlow has sent ahead (`prefetch_to_device`). An emulated device takes no batch.
        on_gpu = self._device.kind == "gpu"
        samples = [
            windows.replay([batch], steps=steps, round_=number)
            if on_gpu
            else windows.resident(batch, steps=steps, round_=number)
            for number in range(LOADER_ROUNDS)
        ]
        return costs, Consumer(
            us_per_image=1e6 * median([sample.s_per_image for sample in samples]),
            cpu_us_per_image=0.0
            if self._device.accelerator
            else 1e6 * median([sample.cpu_s_per_image for sample in samples]),
        )

    def exactness(self, config: PipelineConfig, reference: PipelineConfig) -> Exactness:
        """Compares the images of two pipelines, with the same draws."""
        try:
            if self._reference is None or self._reference[0] != reference:
                self._reference = reference, compared_images(reference, self._source)
            return compare(compared_images(config, self._source), self._reference[1])
        except UnavailableError as error:
            raise Refused(str(error)) from error

    def seconds_to_prepare(self, config: PipelineConfig) -> float:
        """Returns the seconds per image that a pipeline needs before its first epoch."""
        return seconds_to_prepare(config, self._source)

    def open_pipeline(self, text: str, model: str, memory_bytes: float, budget_s: float) -> None:
        """Calls the user's function that returns a pipeline, and gets ready to try remedies for it."""
        try:
            windows = Windows(self._models[model], self._device)
            room = replace(room_here(), memory_bytes=memory_bytes)
            self._pipeline = UserPipeline(call(text), windows, room, budget_s)
        except PipelineError as error:
            raise Refused(str(error)) from error

    def advance_pipeline(self) -> Trial:
        """Measures the next round of the trial, and returns all that was measured so far."""
        assert self._pipeline is not None
        try:
            return self._pipeline.advance()
        except PipelineError as error:
            raise Refused(str(error)) from error

    def change_of_pipeline(self) -> str:
        """Returns a diff that puts the chosen remedies into the user's code."""
        assert self._pipeline is not None
        try:
            return self._pipeline.change()
        except PipelineError as error:
            raise Refused(str(error)) from error
