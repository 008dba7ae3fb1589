"""SPDL: a pipeline of threads, FFmpeg's decoder and scaler, and OpenCV for what FFmpeg has no filter for.

Configured after SPDL's documentation: threads for work that releases Python's lock ("Execution Models", MT), batches
made from decoded frames without an array for each image ("Best Practices"), as many concurrent calls as threads (the
example `image_dataloading`). FFmpeg's option `lowres` makes it decode at a fraction of the size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder

from benchmarks.peers.loaders.opencv import augment, scaled_ratio
from benchmarks.peers.loaders.work import BATCH, SIDE, AllEpochs, Job, Loader, to_output

# Batches in the sink. SPDL: "a value of 2-10 is typically sufficient".
_SINK = 4
# Decoder settings by ratio. Made at import, so that the import fails where FFmpeg's libraries are missing.
_REDUCED = {
    ratio: spdl.io.decode_config(decoder="mjpeg", decoder_options={"lowres": str(power)})
    for power, ratio in enumerate((1, 2, 4, 8))
}


def cold(job: Job) -> Loader:
    cv2.setNumThreads(0)
    workers = int(job.workers or 1)
    random = np.random.default_rng()
    # SPDL's default keeps the aspect and adds black bars. The other loaders stretch the image, and so does this filter.
    scale = f"scale=w={SIDE}:h={SIDE}:flags=fast_bilinear,format=pix_fmts=rgb24"

    def decode(path: str) -> Any:
        packets = spdl.io.demux_image(path)
        is_jpeg = packets.codec.name == "mjpeg"
        config = _REDUCED[scaled_ratio(packets.height, packets.width)] if is_jpeg else None
        return spdl.io.decode_packets(packets, filter_desc=scale, decode_config=config)

    def load(indices: list[int]) -> tuple[np.ndarray, np.ndarray]:
        frames = [decode(job.paths[index]) for index in indices]
        images = spdl.io.to_numpy(spdl.io.convert_frames(frames))
        moved = np.empty_like(images)
        for row, image in enumerate(images):
            augment(image, random, out=moved[row])
        return to_output(moved, job), labels[indices]

    labels = np.array(job.labels)

    def indices(epochs: int) -> Iterator[list[int]]:
        for _ in range(epochs):
            order = random.permutation(job.images).tolist()
            for start in range(0, job.images, BATCH):
                yield order[start : start + BATCH]

    def batches(epochs: int) -> Iterator[tuple[Any, Any]]:
        pipeline = (
            PipelineBuilder()
            .add_source(indices(epochs))
            .pipe(load, concurrency=workers, max_failures=0)
            .add_sink(_SINK)
            .build(num_threads=workers)
        )
        with pipeline.auto_stop():
            yield from pipeline

    return AllEpochs(batches)
