"""Runs in a fresh process for each place, so that cores, memory and the first batch belong to that place alone."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tests.growth.places import Measurement, Place
from unstall.pipeline import build, open_source
from unstall.pipeline.building import Loader
from unstall.profiles import clock
from unstall.profiles.devices import CPU
from unstall.profiles.machine import PeakMemory
from unstall.profiles.samples import Sample

if TYPE_CHECKING:
    from unstall.profiles.measure.windows import Windows

# Steps of the first iterator. They show how long a step takes.
_TRIAL_STEPS = 4
# How long the steady part is measured, whatever the length of the list: about this many seconds, at least this many
# steps, at most this many images and epochs.
_WINDOW_S, _LEAST_STEPS, _MOST_IMAGES, _MOST_EPOCHS = 1.5, 6, 8192, 5
# Wait at most this long for batches that an abandoned iterator is still making: a queue of Keras' workers holds ten.
_LEAVE_S = 30.0
# The process is idle when it used less than this share of a core during one look.
_IDLE_RATIO, _IDLE_LOOK_S = 0.05, 0.05


class PlaceSession:
    """Answers the parent; each request is a method.

    Args:
      cores: the CPUs that this process may use; None for all that the parent may use.
      cache: the folder for files that loaders make. Each process has its own.
    """

    def __init__(self, cores: Sequence[int] | None, cache: str) -> None:
        if cores is not None:
            os.sched_setaffinity(0, cores)
        os.environ["UNSTALL_CACHE"] = cache

    def measure(self, place: Place, folder: str, round_: int) -> Measurement:
        """Scans the folder, builds and iterates the loader, and scans again; imports TensorFlow, and not before."""
        windows = _windows(place)
        memory = PeakMemory()
        begin_ns = clock.now_ns()
        source = open_source(folder)
        listed_ns = clock.now_ns()
        loader = build(place.config, source)
        built_ns = clock.now_ns()
        with loader:
            first = _first(windows, loader, round_)
            _wait_until_idle()
            steady = _steady(windows, loader, first, place.config.batch_size, round_)
            memory_bytes = memory.growth_bytes()
            _wait_until_idle()
            again_ns = clock.now_ns()
            open_source(folder)
            listed_again_ns = clock.now_ns()
            return Measurement(
                round=round_,
                images=source.images,
                listing_ns=listed_ns - begin_ns,
                listing_again_ns=listed_again_ns - again_ns,
                build_ns=built_ns - listed_ns,
                memory_bytes=memory_bytes,
                first=first,
                steady=steady,
            )

    def close(self) -> None:
        """Does nothing: `measure` closes its loader."""


def _windows(place: Place) -> Windows:
    """Returns an object that iterates a loader as `fit` does, beside a model of one layer that has made its step."""
    import keras

    from unstall.pipeline.loaders import keras as keras_loaders  # noqa: F401 - so that building a loader does not import it
    from unstall.profiles.measure.windows import Windows

    height, width = place.config.image_size
    model = keras.Sequential(
        [keras.Input((height, width, 3)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
    )
    model.compile(loss="mse")
    windows = Windows(model, CPU)
    windows.prepare([(np.zeros((1, height, width, 3), np.float32), np.zeros((1,), np.float32))])
    return windows


def _first(windows: Windows, loader: Loader, round_: int) -> Sample:
    steps = loader.parallel_batches + _TRIAL_STEPS
    return _loaded(windows, loader, 1, steps if loader.batches > steps else None, round_)


def _steady(windows: Windows, loader: Loader, first: Sample, batch_size: int, round_: int) -> Sample:
    epochs, steps = extent(loader, batch_size, 1 / first.s_per_image)
    return _loaded(windows, loader, epochs, steps, round_)


def _loaded(windows: Windows, loader: Loader, epochs: int, steps: int | None, round_: int) -> Sample:
    """Iterates whole epochs, or, of a tf.data pipeline, one epoch that ends after so many steps."""
    part = loader.data if steps is None or not hasattr(loader.data, "take") else loader.data.take(steps)
    return windows.loader(part, epochs=epochs, ramp_steps=loader.parallel_batches, round_=round_)


def extent(loader: Loader, batch_size: int, images_per_sec: float) -> tuple[int, int | None]:
    """Returns how many epochs to measure, and how many steps of each epoch: None for whole epochs."""
    images = max(_LEAST_STEPS * batch_size, min(_MOST_IMAGES, images_per_sec * _WINDOW_S))
    steps = loader.parallel_batches + math.ceil(images / batch_size)
    if steps < loader.batches:
        return 1, steps
    return min(_MOST_EPOCHS, math.ceil(images / loader.images)), None


def _wait_until_idle() -> None:
    """Waits until the loader has finished the batches that it began for an iterator."""
    until_ns = clock.now_ns() + int(_LEAVE_S * 1e9)
    while clock.now_ns() < until_ns:
        begin_ns, busy_ns = clock.now_ns(), clock.cpu_ns()
        clock.sleep_until_ns(begin_ns + int(_IDLE_LOOK_S * 1e9))
        if clock.cpu_ns() - busy_ns < _IDLE_RATIO * (clock.now_ns() - begin_ns):
            return
