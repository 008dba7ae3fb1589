"""Datasets whose images are counted, and the session whose loader is slow in one process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import tensorflow as tf

from unstall.benchmarks.trainers.child import TrainerSession
from unstall.benchmarks.trainers.plan import Asked
from unstall.benchmarks.trainers.timed_fit import counted
from unstall.pipeline import VARIANTS, ImageSource, build, from_folder
from unstall.profiles import clock

BATCH = 4
SLOW_PROCESS, DELAY_MS = 1, 100


@contextlib.contextmanager
def a_feed(photos: Any) -> Iterator[tuple[Any, list[int], int]]:
    """Yields our pipeline over a folder, the images of each batch that it has made so far, and its images an epoch."""
    decoded: list[int] = []
    config = replace(VARIANTS["tf-data-autotune"], batch_size=BATCH, image_size=(16, 16))
    source = from_folder(photos)
    source = source.take(source.images // BATCH * BATCH)
    with build(config, source) as loader:
        yield counted(loader.data, decoded, BATCH), decoded, source.images


def held_back(dataset: Any, delay_ms: int) -> Any:
    """Holds back each batch of `(images, labels)`."""

    def wait() -> int:
        clock.sleep_until_ns(clock.now_ns() + delay_ms * 1_000_000)
        return 0

    def passes(images: Any, labels: Any) -> tuple[Any, Any]:
        with tf.control_dependencies([tf.numpy_function(wait, [], tf.int64)]):
            return images, tf.identity(labels)

    return dataset.map(passes)


class SlowSession(TrainerSession):
    """A trainer whose loader holds back each batch, if it is `SLOW_PROCESS`."""

    def __init__(self, asked: Asked, source: ImageSource, subject: str, process: int, address: str) -> None:
        super().__init__(asked, source, subject, process, address)
        self._delay_ms = DELAY_MS if process == SLOW_PROCESS else 0

    def data(self, size: tuple[int, int]) -> Any:
        dataset = super().data(size)
        return held_back(dataset, self._delay_ms) if self._delay_ms else dataset
