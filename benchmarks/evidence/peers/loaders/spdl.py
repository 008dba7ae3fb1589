"""SPDL: a pipeline of threads, with FFmpeg's decoder and scaler and OpenCV for the warp, or with OpenCV alone.

Configured after SPDL's documentation: threads for work that releases Python's lock ("Execution Models", MT), batches
made from decoded frames without an array for each image ("Best Practices"), as many concurrent calls as threads (the
example `image_dataloading`). FFmpeg's option `lowres` makes it decode at a fraction of the size. FFmpeg's
`fast_bilinear` is no choice: it moves the image, by 14 of 255 on average over the pixels of 400-pixel photos.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder

from unstall.benchmarks.evidence.peers.loaders.opencv import augment, scaled_ratio
from unstall.benchmarks.evidence.peers.loaders.remedied import Batches
from unstall.benchmarks.evidence.peers.loaders.work import BATCH, SIDE, AllEpochs, Job, Loader, to_output

# Batches in the sink. SPDL: "a value of 2-10 is typically sufficient".
_SINK = 4
# Decoder settings by ratio. Made at import, so that the import fails where FFmpeg's libraries are missing.
_REDUCED = {
    ratio: spdl.io.decode_config(decoder="mjpeg", decoder_options={"lowres": str(power)})
    for power, ratio in enumerate((1, 2, 4, 8))
}


def full(job: Job) -> Loader:
    return _ffmpeg(job, scaled=False)


def scaled(job: Job) -> Loader:
    return _ffmpeg(job, scaled=True)


def one_resampling(job: Job) -> Loader:
    make = Batches(job, one_resampling=True)

    def load(number: int) -> tuple[np.ndarray, np.ndarray]:
        images, labels = make(number)
        return to_output(images, job), labels

    begun = itertools.count()

    def numbers(epochs: int) -> Iterator[int]:
        for epoch in itertools.islice(begun, epochs):
            yield from make.of_epoch(epoch)

    return _loader(job, numbers, load)


def _ffmpeg(job: Job, *, scaled: bool) -> Loader:
    random = np.random.default_rng()
    # SPDL's default keeps the aspect and adds black bars. The other loaders stretch the image, and so does this filter.
    scale = f"scale=w={SIDE}:h={SIDE}:flags=bilinear,format=pix_fmts=rgb24"
    labels = np.array(job.labels)
    sizes = job.jpeg_sizes

    def decode(index: int) -> Any:
        packets = spdl.io.demux_image(job.paths[index])
        config = _REDUCED[scaled_ratio(*sizes[index])] if scaled and all(sizes[index]) else None
        return spdl.io.decode_packets(packets, filter_desc=scale, decode_config=config)

    def load(indices: list[int]) -> tuple[np.ndarray, np.ndarray]:
        frames = [decode(index) for index in indices]
        images = spdl.io.to_numpy(spdl.io.convert_frames(frames))
        moved = np.empty_like(images)
        for row, image in enumerate(images):
            augment(image, random, out=moved[row])
        return to_output(moved, job), labels[indices]

    def indices(epochs: int) -> Iterator[list[int]]:
        for _ in range(epochs):
            order = random.permutation(job.images).tolist()
            for start in range(0, job.images, BATCH):
                yield order[start : start + BATCH]

    return _loader(job, indices, load)


def _loader(job: Job, items: Callable[[int], Iterator[Any]], load: Callable[[Any], tuple[Any, Any]]) -> Loader:
    """Returns a loader whose threads make a batch of each item; `items` returns those of a number of epochs."""
    cv2.setNumThreads(0)
    workers = int(job.workers or 1)

    def batches(epochs: int) -> Iterator[tuple[Any, Any]]:
        pipeline = (
            PipelineBuilder()
            .add_source(items(epochs))
            .pipe(load, concurrency=workers, max_failures=0)
            .add_sink(_SINK)
            .build(num_threads=workers)
        )
        with pipeline.auto_stop():
            yield from pipeline

    return AllEpochs(batches)
