"""What the tuner's predictions rest on: the costs of the stages, measured alone, and of the model.

A stage is measured once, and its cost is used for all pipelines that have the stage.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from unstall.benchmarks.lab.session import noise_batch
from unstall.pipeline import ImageSource, PipelineConfig, build
from unstall.pipeline.cost_model import Consumer, StageCost, StageKey, stages_of
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.stages import augment, output
from unstall.profiles import clock
from unstall.profiles.measure import RAMP_STEPS, TRIAL_STEPS, steps_for
from unstall.profiles.measure.windows import Windows
from unstall.profiles.provenance import usable_cores
from unstall.profiles.samples import Sample
from unstall.profiles.stages.tf_stages import Drain, serial_options
from unstall.profiles.statistics import median

# A run of one stage lasts about so many seconds; and how many runs of each are timed.
_RUN_S, _RUNS = 0.1, 3
# The model is not measured again when that has taken so many seconds.
_CONSUMER_S = 10.0
# Stages that run Python code, whose lock may keep calls from running at once.
_PYTHON = {"opencv", "albumentations", "composed", "raw"}
# Where parallel calls keep fewer cores busy than this part of the number of calls, they wait for something else.
_WAITING_RATIO = 0.9
# A stage that takes less than this many times the CPU time while all cores are busy is one that they do not slow down.
_CROWDED_RATIO = 1.1


def measure_costs(
    keys: Iterable[StageKey], windows: Windows, config: PipelineConfig, source: ImageSource
) -> tuple[dict[StageKey, StageCost], Consumer]:
    """Measures the costs of stages and of a model, in turns.

    Args:
      config: gives batch size, image size and augmentation.
      source: the images that are loaded.
    """
    consumer = ConsumerCost(windows, config, source)
    with StageCosts(config, source, keys) as stages:
        for number in range(_RUNS):
            stages.run()
            consumer.run(number)
        return stages.costs, consumer.cost(stages.costs)


class StageCosts(contextlib.ExitStack):
    """Measures stages one at a time, in pipelines without any parallelism.

    All are opened, and each round runs each of them once: a moment in which other programs take the cores, or none
    does, is in one round of every stage, and not in all rounds of one.

    Args:
      base: gives batch size, image size and augmentation.
      source: the images that are loaded.
      keys: of stages, as `pipeline.cost_model.stages_of` names them. Those that this source cannot have, such as
        decoding of pixels, are left out.
    """

    def __init__(self, base: PipelineConfig, source: ImageSource, keys: Iterable[StageKey]) -> None:
        super().__init__()
        self._base = _one_at_a_time(base, shuffle_buffer=0)
        self._shuffle_buffer = base.shuffle_buffer
        self._source = source
        self._calls = max(1, round(usable_cores()))
        self._opened: dict[StageKey, _Stage] = {}
        opens = {
            "batch": self._batch,
            "load": self._load,
            "cached": self._cached,
            "composed": self._composed,
            "augment": self._augment,
        }
        # The "batch" stages, the tails of all pipelines, first: other stages can only be measured together with one,
        # and its cost is subtracted.
        with contextlib.ExitStack() as opening:
            opening.push(self)
            for key in sorted(dict.fromkeys(keys), key=lambda key: key[0] != "batch"):
                with contextlib.suppress(UnavailableError):
                    self._opened[key] = opens[key[0]](key)
            opening.pop_all()

    def run(self) -> None:
        """Measures a round of all stages."""
        for stage in self._opened.values():
            stage.run()

    @property
    def costs(self) -> dict[StageKey, StageCost]:
        """The costs by stage, from the rounds so far."""
        costs: dict[StageKey, StageCost] = {}
        for key, stage in self._opened.items():
            tail_us = 0.0 if stage.tail is None else costs[stage.tail].us_per_image
            costs[key] = stage.cost(tail_us, self._calls)
        return costs

    def _batch(self, key: StageKey) -> _Stage:
        """Opens the tail of a pipeline, behind its augmentation: batching, and conversion to the output's type."""
        config = replace(self._base, output_dtype=key[2])
        if key[1] == "elements":
            dataset = _ready(config).repeat().batch(config.batch_size)
        else:
            pixels = np.zeros((config.batch_size, *config.image_size, 3), np.uint8)
            dataset = tf.data.Dataset.from_tensors((pixels, np.zeros(config.batch_size, np.int32))).repeat()
        single = _Runs(output.rescale(dataset, config), serial_options())
        return _Stage(single=single, images=config.batch_size)

    def _load(self, key: StageKey) -> _Stage:
        config = replace(self._base, storage=key[1], decode=_decode(key), augmentation=None)
        if key[1] == "records":  # only with a shuffle buffer are they read from front to back, as in training
            config = replace(config, shuffle_buffer=self._shuffle_buffer)
        return self._built(config, python=key[1] in _PYTHON)

    def _cached(self, key: StageKey) -> _Stage:
        # With the shuffle buffer that follows a cache in memory: its cost is part of every epoch.
        shuffle_buffer = PipelineConfig().shuffle_buffer
        config = replace(self._base, cache=key[1], augmentation=None, shuffle_buffer=shuffle_buffer)
        return self._built(config, python=key[1] == "disk")

    def _composed(self, key: StageKey) -> _Stage:
        config = replace(
            self._base,
            storage=key[1],
            decode=_decode(key),
            resample="composed",
            augment_with="opencv",
            augment_at="batch",
        )
        return self._built(config, python=True)

    def _augment(self, key: StageKey) -> _Stage:
        config = replace(self._base, augment_with=key[1], augment_at=key[2])
        batches = -(-4096 // config.batch_size)
        images = batches * config.batch_size

        def drawn(config: PipelineConfig) -> Any:
            dataset = _ready(config).repeat(images)
            if config.augment_at == "batch":  # of a batch that is made once, so that only the augmentation is measured
                dataset = _ready(config).repeat(config.batch_size).batch(config.batch_size).cache().repeat(batches)
            return augment.augment(dataset, images, config)

        several = drawn(replace(config, workers=self._calls)) if self._calls > 1 else None
        return _Stage(
            single=_Runs(drawn(config), serial_options()),
            several=None if several is None else _Runs(several, several.options()),
            images=config.batch_size if config.augment_at == "batch" else 1,
            python=key[1] in _PYTHON,
        )

    def _built(self, config: PipelineConfig, *, python: bool) -> _Stage:
        """Opens a whole loader, whose tail was opened before."""
        source = self._source
        single = self.enter_context(build(config, source)).data
        several = None
        # A cache in memory is read by one thread.
        if self._calls > 1 and config.cache != "memory":
            several = self.enter_context(build(replace(config, workers=self._calls), source)).data
        return _Stage(
            single=_Runs(single, serial_options()),
            several=None if several is None else _Runs(several, several.options()),
            images=source.images / -(-source.images // config.batch_size),
            tail=("batch", "batches" if config.composed else "elements", config.output_dtype),
            python=python,
        )


class _Runs:
    """The runs of a dataset, each of about `_RUN_S` seconds."""

    def __init__(self, dataset: Any, options: Any) -> None:
        elements = 4
        while True:
            drain = Drain(dataset, elements, options)
            run_us = drain.run()[1] * drain.elements
            if run_us >= _RUN_S * 1e6 / 3 or elements >= 1 << 16:
                break
            # A short run is mostly its beginning, so that more elements take less than in proportion.
            elements = min(max(4 * elements, round(elements * _RUN_S * 1e6 / run_us)), 64 * elements)
        self._drain = Drain(dataset, max(4, round(elements * _RUN_S * 1e6 / run_us)), options)
        self._cpu_us: list[float] = []
        self._cores_busy: list[float] = []

    def run(self) -> None:
        cpu_us, wall_us = self._drain.run()
        self._cpu_us.append(cpu_us)
        self._cores_busy.append(cpu_us / wall_us)

    @property
    def cpu_us(self) -> float:
        """CPU time of an element, in microseconds: other programs on the machine hardly change it.

        It leaves out waiting for storage, of which there is none: the files are in the page cache.
        """
        return median(self._cpu_us)

    @property
    def cores_busy(self) -> float:
        return median(self._cores_busy)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """What is run to measure a stage.

    Attributes:
      single: runs without parallelism.
      several: runs of as many parallel calls as there are cores; None where the stage has none.
      images: of an element.
      tail: the stage that runs with it, whose cost is subtracted.
      python: whether the stage runs Python code, whose lock may keep calls from running at once.
    """

    single: _Runs
    several: _Runs | None = None
    images: float
    tail: StageKey | None = None
    python: bool = False

    def run(self) -> None:
        self.single.run()
        if self.several is not None:
            self.several.run()

    def cost(self, tail_us: float, calls: int) -> StageCost:
        """Returns the cost of a stage, with what its parallel calls showed.

        The busy cores of parallel calls are divided by those of single calls, which ran just before: on a machine that
        does other work, even a single call keeps less than one core busy.

        Args:
          tail_us: CPU time per image that is no part of the stage.
          calls: how many calls `several` makes.
        """
        apart_us = tail_us * self.images
        cost = StageCost(us_per_image=max(self.single.cpu_us - apart_us, 0.01) / self.images)
        if self.several is None:
            return cost
        reached = self.several.cores_busy / self.single.cores_busy
        crowded = (self.several.cpu_us - apart_us) / max(self.single.cpu_us - apart_us, 0.01)
        # Calls that wait for a lock, or for the elements that they get, do not keep all cores busy.
        waits = reached < _WAITING_RATIO * calls
        return replace(
            cost,
            most_calls=max(reached, 1.0) if self.python and reached < calls else None,
            crowded_factor=crowded if not waits and crowded > _CROWDED_RATIO else 1.0,
        )


class ConsumerCost:
    """Measures a model that is fed with batches that are ready: alone, and beside a loader that always has work.

    Args:
      config: of the batches.
      source: what that loader reads.
    """

    def __init__(self, windows: Windows, config: PipelineConfig, source: ImageSource) -> None:
        batch = noise_batch(config.batch_size, config.image_size)
        windows.prepare([batch])
        trial = windows.resident(batch, steps=TRIAL_STEPS, round_=0)
        self._windows = windows
        # On a GPU the time of a step includes the way of a float32 batch from the host: too much for uint8, and for
        # batches that TensorFlow has sent ahead (`prefetch_to_device`). An emulated device takes no batch.
        ready = tf.data.Dataset.from_tensors(batch).repeat(RAMP_STEPS + steps_for(trial)).prefetch(RAMP_STEPS)
        options = tf.data.Options()
        options.autotune.enabled = False  # it can delay the end of an epoch
        self._ready = ready.with_options(options)
        if windows.device.asynchronous:
            self._train(0)  # until the number of steps is known, the last is not waited for
        self._alone: list[Sample] = []
        self._crowded: list[Sample] = []
        self._source, self._config = source, config
        self._crowd: _Crowd | None = None

    def _train(self, number: int) -> Sample:
        return self._windows.train(self._ready, epochs=1, ramp_steps=RAMP_STEPS, round_=number)

    def run(self, number: int) -> None:
        """Measures a round; none after the first if the model is so slow that they would take long."""
        if sum(sample.outer_ns for sample in (*self._alone, *self._crowded)) > _CONSUMER_S * 1e9:
            return
        alone = self._train(number)
        self._alone.append(alone)
        if self._crowd is None:  # from a whole window: a short trial is mostly its beginning
            calls = max(1, round(usable_cores() - alone.cpu_s_per_image / alone.s_per_image))
            self._crowd = _Crowd(self._source, self._config, calls=calls)
        with self._crowd.working():
            self._crowded.append(self._train(number))

    def cost(self, costs: Mapping[StageKey, StageCost]) -> Consumer:
        """Returns the cost of the rounds so far, of which there must be one.

        Args:
          costs: of stages, of which what the other loader did is one.
        """
        assert self._crowd is not None
        crowded_us = 1e6 * median([sample.s_per_image for sample in self._crowded])
        return Consumer(
            us_per_image=1e6 * median([sample.s_per_image for sample in self._alone]),
            cpu_us_per_image=1e6 * median([sample.cpu_s_per_image for sample in self._alone]),
            crowded_us_per_image=crowded_us,
            crowd_us_per_image=crowded_us * self._crowd.cores_busy(costs),
            crowd_calls=self._crowd.calls,
        )


class _Crowd:
    """A loader that always has work for so many calls."""

    def __init__(self, source: ImageSource, config: PipelineConfig, *, calls: int) -> None:
        self._source = source
        self.calls = calls
        self._config = _one_at_a_time(config, augmentation=None)
        self._images_per_us: list[float] = []

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Works until the block ends."""
        ended = threading.Event()

        def work(batches: Any) -> float:
            images, began_ns = 0, clock.now_ns()
            for batch, _ in batches:
                images += len(batch)
                if ended.is_set():
                    break
            return images / ((clock.now_ns() - began_ns) / 1e3)

        # The loader is opened first: it is closed when all threads have ended.
        with build(self._config, self._source) as loader, ThreadPoolExecutor(self.calls) as threads:
            batches = loader.data.repeat().with_options(serial_options())
            try:
                rates = [threads.submit(work, batches) for _ in range(self.calls)]
                yield
            finally:
                ended.set()
            self._images_per_us.append(sum(rate.result() for rate in rates))

    def cores_busy(self, costs: Mapping[StageKey, StageCost]) -> float:
        """Returns how many cores the loader kept busy, also while Keras began and ended the model's epoch."""
        us = sum(costs[key].busy_us(self.calls, usable_cores()) for key, _ in stages_of(self._config))
        return median(self._images_per_us) * us


def _one_at_a_time(config: PipelineConfig, **changes: Any) -> PipelineConfig:
    """Returns a pipeline without any parallelism, as it is written."""
    return replace(config, loader="tf_data", workers=1, prefetch=0, rewrites=False, autotune=False, **changes)


def _decode(key: StageKey) -> str:
    return key[2] if len(key) > 2 else "full"


def _ready(config: PipelineConfig) -> Any:
    """Returns a dataset of one image that needs no loading."""
    image = np.zeros((*config.image_size, 3), np.float32)
    return tf.data.Dataset.from_tensors((image, np.int32(0)))
