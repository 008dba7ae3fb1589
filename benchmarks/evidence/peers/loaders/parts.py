"""Parts of the cold work, done by threads that serve no batches: decoding, reading before decoding, warping after it.

No loader can be faster than the parts of its work. All parts use OpenCV as our own composed pipelines do, and decode at
the same fractions of the files' sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from unstall.benchmarks.evidence.peers.loaders.source import source_of
from unstall.benchmarks.evidence.peers.loaders.work import BATCH, Job, Loader, Sink
from unstall.pipeline import VARIANTS, ImageSource
from unstall.pipeline.stages import maps_of
from unstall.pipeline.stages.compose import ComposedBatches
from unstall.pipeline.stages.opencv_decode import OpenCVDecoder

_CONFIG = VARIANTS["tf-data-composed"]


class Shares:
    """A loader without batches: each thread processes its share of the images, epoch after epoch.

    Args:
      work: processes the images with the given indices.
    """

    def __init__(self, work: Callable[[Sequence[int]], None], *, images: int, threads: int) -> None:
        self._work, self._images, self._threads = work, images, threads

    def feed(self, epochs: int, sink: Sink) -> None:
        sink.begin()
        self.run(epochs)
        sink.count(epochs * self._images)

    def run(self, epochs: int) -> None:
        """Processes every image once in each epoch.

        Raises:
          ValueError, OSError: whatever the work raises.
        """

        def share(first: int) -> None:
            for _ in range(epochs):
                self._work(range(first, self._images, self._threads))

        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(share, range(self._threads)))


def decode(job: Job) -> Loader:
    return decoding(source_of(job), threads=int(job.workers or 1))


def decoding(source: ImageSource, *, threads: int) -> Shares:
    """Decodes a source's files from memory."""
    decoder = OpenCVDecoder(source, _CONFIG)
    encoded = [np.fromfile(path, np.uint8) for path in source.paths]

    def work(indices: Sequence[int]) -> None:
        for index in indices:
            decoder.decode(index, encoded[index])

    return Shares(work, images=source.images, threads=threads)


def read_decode(job: Job) -> Loader:
    decoder = OpenCVDecoder(source_of(job), _CONFIG)

    def work(indices: Sequence[int]) -> None:
        for index in indices:
            decoder(index)

    return Shares(work, images=job.images, threads=int(job.workers or 1))


def read_decode_warp(job: Job) -> Loader:
    warped = warping(job)

    def work(indices: Sequence[int]) -> None:
        for begin in range(0, len(indices), BATCH):
            warped(np.array(indices[begin : begin + BATCH]))

    return Shares(work, images=job.images, threads=int(job.workers or 1))


def warping(job: Job) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that reads, decodes and warps the images with the given indices, by maps computed here."""
    batches, matrices = ComposedBatches(source_of(job), _CONFIG), maps_of(job.images, _CONFIG, epoch=0)
    plan = batches.plan(np.arange(job.images), matrices)
    return lambda rows: batches(rows, matrices[rows], plan[rows])
