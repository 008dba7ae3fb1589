"""Builds a user's own tf.data pipeline with each possible change, and measures each with the same model.

Runs in a measuring child: see `benchmarks.tune.child`.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

import unstall
from benchmarks.tune.own.samples import PipelineFacts
from profiles.measure import TRAIN_WINDOW_S, epochs_for
from profiles.measure.batches import batch_images
from profiles.measure.windows import Windows
from profiles.provenance import usable_cores
from profiles.remedies.tf_rebuilding import Rebuilding
from profiles.samples import Sample
from profiles.stages import CutError

# An epoch of the measurement lasts about so many seconds and has at least so many batches. Then it matters little that
# nothing else happens while the first batch is prepared, and while the model trains on the last.
_EPOCH_S, _LEAST_BATCHES = 2 * TRAIN_WINDOW_S, 16
# The longest epoch, in seconds, of a pipeline that can only be measured in whole epochs.
_WHOLE_EPOCH_S = 20.0


class PipelineError(ValueError):
    """A user's pipeline cannot be used; the message says why, and what to do."""


def call(text: str) -> Any:
    """Imports `module:function` and returns the tf.data.Dataset that it gives.

    Raises:
      PipelineError: if there is no such function, it fails, or gives something else.
    """
    try:
        dataset = unstall.of_users(text)()
    except Exception as error:  # the user's code may raise anything; they get its first line
        reason = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise PipelineError(f"--pipeline {text}: {type(error).__name__}: {reason}.") from error
    if not isinstance(dataset, tf.data.Dataset):
        raise PipelineError(f"--pipeline {text} must return a tf.data.Dataset. Received: {type(dataset).__name__}.")
    return dataset


class UserPipeline:
    """The variants of one pipeline, each fed to the same model.

    Raises:
      PipelineError: if the pipeline cannot be taken apart, or gives no batch.
    """

    def __init__(self, dataset: Any, windows: Windows, memory_limit_bytes: float) -> None:
        self._windows = windows
        try:
            self._rebuilding = Rebuilding(
                dataset, calls=max(1, round(usable_cores())), memory_limit_bytes=memory_limit_bytes
            )
        except CutError as error:
            raise PipelineError(f"this pipeline cannot be taken apart: {error}.") from error
        self._built: dict[str, Any] = {}
        self._epochs: dict[str, int] = {}
        batch = next(iter(self._rebuilding.as_written(1)), None)
        if batch is None:
            raise PipelineError("this pipeline gives no batch.")
        self._images_per_batch = batch_images(batch)
        windows.prepare([batch])

    def facts(self) -> PipelineFacts:
        """Builds the pipeline with each change, each with as many batches as an epoch of the measurement needs.

        Raises:
          PipelineError: if the pipeline can be measured in whole epochs only, and these take too long.
        """
        changes = self._rebuilding.changes(self._batches())
        self._built = {change.name: dataset for change, dataset in changes.items()}
        part = self._rebuilding.part
        images = part.images(self._images_per_batch)
        notes: tuple[str, ...] = ()
        if not part.length_known:
            notes = ("The length of an epoch was not found: what it does once at its edges is in no rate.",)
        return PipelineFacts(
            stages=self._rebuilding.stages,
            changes=tuple(changes),
            refused=tuple(self._rebuilding.refused),
            epoch_images=None if math.isinf(images) else images,
            scaled=part.scales,
            notes=notes,
        )

    def window(self, name: str, round_: int) -> Sample:
        """Measures one window of training of one variant.

        Before the first window, two epochs of warm-up fill the variant's caches and tell how many epochs a window has.
        """
        dataset = self._built[name]
        if name not in self._epochs:
            self._windows.train(dataset, epochs=1, ramp_steps=2, round_=0, window="warmup")
            self._epochs[name] = epochs_for(
                self._windows.train(dataset, epochs=1, ramp_steps=2, round_=0, window="warmup")
            )
        return self._windows.train(dataset, epochs=self._epochs[name], ramp_steps=4, round_=round_)

    def _batches(self) -> int:
        """Returns how many batches an epoch of the measurement needs: more and more are timed until it is known."""
        part = self._rebuilding.part
        batches = _LEAST_BATCHES
        while True:
            epoch_s = self._epoch_s(batches)
            if part.is_whole(batches):
                return batches
            if epoch_s > _EPOCH_S / 4:
                return max(_LEAST_BATCHES, math.ceil(batches * _EPOCH_S / epoch_s))
            batches *= 4

    def _epoch_s(self, batches: int) -> float:
        held_by = self._rebuilding.part.held_by
        limit_s = math.inf if held_by is None else _WHOLE_EPOCH_S
        try:
            sample = self._windows.train(
                self._rebuilding.as_written(batches),
                epochs=1,
                ramp_steps=1,
                round_=0,
                window="warmup",
                limit_s=limit_s,
            )
        except ValueError as error:
            if held_by is None:
                raise
            raise PipelineError(f"{held_by} lets only whole epochs be measured. {error}") from error
        return sample.epoch_ns / 1e9
