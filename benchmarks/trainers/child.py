"""Trains in a child process, alone or as one of several, and times each step.

The parent has put Keras' backend, and how many devices JAX has, into the environment (`Subject.environment`).
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.lab.session import noise_batch
from unstall.benchmarks.trainers.plan import Asked
from unstall.benchmarks.trainers.samples import ProcessEpoch
from unstall.benchmarks.trainers.subjects import BY_FILES, BY_KERAS, SUBJECTS
from unstall.benchmarks.trainers.timed_fit import TimedFit, counted
from unstall.models import ModelError, image_size, open_model
from unstall.pipeline import ImageSource, build
from unstall.pipeline.errors import UnavailableError
from unstall.profiles.devices import CPU
from unstall.profiles.measure.windows import Windows

# Steps of the copy of the model that has no other trainers; the first is not measured.
_ALONE_STEPS = 4


class TrainerSession:
    """Answers the parent; each request is a method. All processes of a subject are asked at the same time.

    Args:
      subject: a name of `SUBJECTS`.
      process: the number of this process, from 0.
      address: where process 0 waits for the others, HOST:PORT; empty where there are none.
    """

    def __init__(self, asked: Asked, source: ImageSource, subject: str, process: int, address: str) -> None:
        self._asked, self._source, self._process, self._address = asked, source, process, address
        self._name, self._subject = subject, SUBJECTS[subject]
        self._decoded: list[int] = []
        self._loader: Any = None
        self._fit: TimedFit | None = None
        self._alone: Windows | None = None
        self._batch: Any = None
        if self._subject.backend == "tensorflow" and self._subject.several:
            [cpu] = tf.config.list_physical_devices("CPU")
            devices = [tf.config.LogicalDeviceConfiguration()] * asked.trainers
            tf.config.set_logical_device_configuration(cpu, devices)

    def start(self) -> None:
        """Opens the model and the loader, and trains for two epochs, of which none counts.

        Raises:
          Refused: if the model or the loader cannot be used here.
        """
        try:
            if self._subject.processes:
                keras.distribution.initialize(self._address, self._asked.trainers, self._process)
            keras.utils.set_random_seed(0)
            with self._distributed():
                model = self._model()
            size = image_size(model, self._asked.model)
            self._fit = TimedFit(model, self.data(size), self._decoded)
        except (ModelError, UnavailableError) as error:
            raise Refused(str(error)) from error
        self._batch = noise_batch(self._asked.config.batch_size, size)
        self.epoch(0)

    def _model(self) -> Any:
        return open_model(self._asked.model, classes=len(self._source.class_names))

    def _distributed(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the scope in which the subject's model is made. On JAX its distribution stays in place."""
        if self._subject.several and self._subject.backend == "tensorflow":
            devices = [device.name for device in tf.config.list_logical_devices("CPU")]
            return tf.distribute.MirroredStrategy(devices).scope()
        if self._subject.several:
            self._distribute()
        return contextlib.nullcontext()

    def _distribute(self) -> None:
        automatic = self._subject.sharded_by == BY_KERAS
        keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=automatic))

    def data(self, size: tuple[int, int]) -> Any:
        """Returns the dataset of this process, whose images are counted as they leave the pipeline."""
        source, config = self._source, replace(self._asked.config, image_size=size)
        if self._subject.sharded_by == BY_FILES:  # an order and draws of its own
            source = source.shard(self._process, self._asked.trainers)
            config = replace(config, seed=config.seed + self._process)
        elif self._subject.several:
            config = replace(config, batch_size=config.batch_size * self._asked.trainers)
        assert source.images % config.batch_size == 0, (source.images, config.batch_size)
        self._loader = build(config, source)
        return counted(self._loader.data, self._decoded, config.batch_size)

    def epoch(self, number: int) -> ProcessEpoch:
        """Trains for two epochs, of which the second is measured.

        Args:
          number: of the round.
        """
        assert self._fit is not None
        return replace(self._fit.epoch(self._name, number, self._process), alone_ns=self._alone_ns(number))

    def _alone_ns(self, number: int) -> int | None:
        """Returns the time of a step without other trainers, of a copy of the model; None in one process."""
        if not self._subject.processes:
            return None
        keras.distribution.set_distribution(None)
        if self._alone is None:
            self._alone = Windows(self._model(), CPU)
        sample = self._alone.resident(self._batch, steps=_ALONE_STEPS, round_=number)
        self._distribute()
        return int(sample.s_per_image * self._asked.config.batch_size * 1e9)

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()
