"""Trains in a child process, alone or as one of several, and times each step.

The parent has put Keras' backend, and how many devices JAX has, into the environment (`place.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.lab.session import noise_batch
from unstall.benchmarks.trainers.auto_shard import asked_of_tensorflow
from unstall.benchmarks.trainers.counting import Counter, counted
from unstall.benchmarks.trainers.place import Place
from unstall.benchmarks.trainers.plan import Asked
from unstall.benchmarks.trainers.samples import AutoShard, ProcessEpoch
from unstall.benchmarks.trainers.subjects import BY_FILES, BY_KERAS, SUBJECTS
from unstall.benchmarks.trainers.timed_fit import TimedFit, timed_replicas
from unstall.models import ModelError, image_size, open_model
from unstall.pipeline import ImageSource, build
from unstall.pipeline.errors import UnavailableError
from unstall.profiles.devices import CPU
from unstall.profiles.measure.windows import Windows

# Steps of the copy of the model that has no other trainers; the first is not measured.
_ALONE_STEPS = 4


class TrainerSession:
    """Answers the parent; each request is a method. All processes of a subject are asked at the same time."""

    def __init__(self, asked: Asked, source: ImageSource, place: Place) -> None:
        self._asked, self._source, self._place = asked, source, place
        self._subject = SUBJECTS[place.subject]
        self._counter = Counter()
        self._loader: Any = None
        self._fit: TimedFit | None = None
        self._alone: Windows | None = None
        self._batch: Any = None
        if self._subject.backend == "tensorflow" and self._subject.several:
            [cpu] = tf.config.list_physical_devices("CPU")
            devices = [tf.config.LogicalDeviceConfiguration()] * asked.trainers
            tf.config.set_logical_device_configuration(cpu, devices)

    def start(self) -> AutoShard | None:
        """Opens the model and the loader, and trains for two epochs. Returns what TensorFlow says of the dataset.

        Raises:
          Refused: if the model or the loader cannot be used here.
        """
        try:
            return self._start()
        except (ModelError, UnavailableError) as error:
            raise Refused(str(error)) from error

    def _start(self) -> AutoShard | None:
        if self._subject.processes:
            address = f"{self._place.host}:{self._place.port}"
            keras.distribution.initialize(address, self._asked.trainers, self._place.process)
        keras.utils.set_random_seed(0)
        with self._distributed() as strategy:
            model = open_model(self._asked.model, classes=len(self._source.class_names))
            model, replicas = timed_replicas(model) if strategy else (model, None)
        size = image_size(model, self._asked.model)
        data = self._data(size)
        facts = None
        if strategy is not None:
            facts = asked_of_tensorflow(data, self._counter, hosts=self._asked.trainers)
        self._fit = TimedFit(model, data, self._counter, replicas)
        self._fit.epoch()
        if self._subject.processes:
            self._prepare_alone(size)
        return facts

    @contextlib.contextmanager
    def _distributed(self) -> Iterator[Any]:
        """Puts the subject's distribution in place. Yields TensorFlow's strategy; None on JAX and for one trainer."""
        if not self._subject.several:
            yield None
        elif self._subject.backend == "tensorflow":
            strategy = tf.distribute.MirroredStrategy([device.name for device in tf.config.list_logical_devices("CPU")])
            with strategy.scope():
                yield strategy
        else:
            self._distribute()
            yield None

    def _distribute(self) -> None:
        automatic = self._subject.sharded_by == BY_KERAS
        keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=automatic))

    def _data(self, size: tuple[int, int]) -> Any:
        """Returns the dataset of this process, whose images are counted as they leave the pipeline."""
        images, batch_size = self._source.images, self._asked.config.batch_size
        trainers = self._asked.trainers if self._subject.several else 1
        source = self._source
        if self._subject.sharded_by == BY_FILES:
            source = source.shard(self._place.process, trainers)
        else:
            batch_size *= trainers
        assert source.images % batch_size == 0, (images, batch_size)
        config = replace(self._asked.config, image_size=size, batch_size=batch_size)
        if self._subject.sharded_by == BY_FILES:  # an order and draws of its own
            config = replace(config, seed=config.seed + self._place.process)
        self._loader = build(config, source)
        return counted(self._loader.data, self._counter, batch_size, delay_ms=self._delay_ms())

    def _delay_ms(self) -> int:
        planted = self._asked.planted
        if planted is None or not self._subject.processes or planted.process != self._place.process:
            return 0
        return planted.delay_ms

    def _prepare_alone(self, size: tuple[int, int]) -> None:
        keras.distribution.set_distribution(None)
        model = open_model(self._asked.model, classes=len(self._source.class_names))
        self._alone, self._batch = Windows(model, CPU), noise_batch(self._asked.config.batch_size, size)
        self._alone.resident(self._batch, steps=_ALONE_STEPS, round_=0)
        self._distribute()

    def epoch(self, number: int) -> ProcessEpoch:
        """Trains for two epochs, of which the second is measured.

        Args:
          number: of the round.
        """
        assert self._fit is not None
        timed = self._fit.epoch()
        return ProcessEpoch(
            round=number,
            process=self._place.process,
            trained=timed.images,
            decoded=timed.decoded,
            wall_ns=timed.wall_ns,
            wait_ns=tuple(timed.wait_ns),
            step_ns=tuple(timed.step_ns),
            alone_ns=self._alone_ns(number),
            replica_ns=tuple(map(tuple, timed.replica_ns)),
        )

    def _alone_ns(self, number: int) -> int | None:
        if self._alone is None:
            return None
        keras.distribution.set_distribution(None)
        sample = self._alone.resident(self._batch, steps=_ALONE_STEPS, round_=number)
        self._distribute()
        return int(sample.s_per_image * self._asked.config.batch_size * 1e9)

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()
