"""Runs in the process that measures: opens a model in several ways, on some of the machine's cores."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from unstall.benchmarks.devices.experiments import FLOAT32
from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.lab.session import Job, JobFacts, Measured, Session
from unstall.benchmarks.pipeline.sweep.axes import Place
from unstall.models import MODELS, compiled
from unstall.pipeline import ImageSource
from unstall.profiles import Device, clock
from unstall.profiles.measure import FitData
from unstall.profiles.samples import Sample


class SweepSession(Session):
    """Answers the parent's requests.

    Args:
      cores: the CPUs that this process may use; None for all that the parent may use. They are bound before TensorFlow
        is imported, which makes a thread for each.
      places: by the name of the model in jobs, a place that says how the model is opened.
    """

    def __init__(
        self, device: Device, source: ImageSource, cores: Sequence[int] | None, places: Mapping[str, Place]
    ) -> None:
        if cores is not None:
            os.sched_setaffinity(0, cores)
        super().__init__(device, source)
        self._places = places
        # The train functions of several steps, each made and traced by its first `fit`.
        self._functions: dict[Job, Any] = {}

    def _make(self, opened: str, name: str) -> Any:
        import keras

        place = self._places[name]
        before = keras.config.dtype_policy()
        # Of the model alone: the loader's layers stay as they are.
        keras.config.set_dtype_policy(place.precision)
        try:
            if place.image_size is None:
                model = super()._make(opened, name)
            else:
                network = replace(MODELS[place.model], input_shape=(place.image_size, place.image_size, 3))
                model = compiled(network, len(self._source.class_names))
        finally:
            keras.config.set_dtype_policy(before)
        if place.precision != FLOAT32 and all(layer.dtype_policy.name != place.precision for layer in model.layers):
            raise Refused(f"{place.model} sets a precision of its own, so that {place.precision} changes nothing")
        return model

    def prepare(self, job: Job, images: int) -> JobFacts:
        """See `Session.prepare`. Of several steps an execution, an epoch has whole executions where it can.

        Raises:
          Refused: also if an epoch has fewer steps than an execution.
        """
        steps = self._places[job.model].steps_per_execution
        if steps is None:
            return super().prepare(job, images)
        each = steps * job.config.batch_size
        if each > self._source.images:
            raise Refused(f"an execution of {steps} steps takes {each:,} of {self._source.images:,} images")
        facts = super().prepare(job, -(-images // each) * each)
        self._train(job, self._jobs[job], 0, "warmup")
        return facts

    def _train(self, job: Job, measured: Measured, round_: int, window: str) -> Sample:
        """Times whole epochs of the public `fit` where an execution has several steps: those cannot be timed."""
        import keras

        steps = self._places[job.model].steps_per_execution
        if steps is None:
            return super()._train(job, measured, round_, window)
        model, feed = measured.windows.model, measured.feed
        began: list[tuple[int, int]] = []

        def begin(epoch: int, logs: Any) -> None:
            began.append((clock.now_ns(), clock.cpu_ns()))

        data = dict(feed.arguments) if isinstance(feed, FitData) else {"x": feed}
        one_step = model.steps_per_execution, model.train_function
        model.steps_per_execution, model.train_function = steps, self._functions.get(job)
        gc.collect()
        canary_ns, called_ns = clock.canary_ns(), clock.now_ns()
        try:
            callback = keras.callbacks.LambdaCallback(on_epoch_begin=begin)
            keras.Model.fit(
                model, epochs=measured.epochs, verbose=0, callbacks=[callback], **({"shuffle": False} | data)
            )
            returned_ns, cpu_ns = clock.now_ns(), clock.cpu_ns()
            self._functions[job] = model.train_function
        finally:
            model.steps_per_execution, model.train_function = one_step
        images, wall_ns = measured.loader.images * measured.epochs, returned_ns - began[0][0]
        return Sample(
            window=window,
            round=round_,
            images=images,
            wall_ns=wall_ns,
            wait_ns=0,  # unknown, as is every step
            step_ns=(wall_ns,),
            epochs=measured.epochs,
            epoch_images=images,
            epoch_ns=wall_ns,
            first_batch_ns=(),
            outer_ns=returned_ns - called_ns,
            claimed_ns=None,
            cpu_ns=cpu_ns - began[0][1],
            canary_ns=canary_ns,
        )
