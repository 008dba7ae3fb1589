"""NVIDIA DALI's Pipeline API, on the CPU.

Configured after DALI's documentation: a CPU-only pipeline (`device_id=None`), the number of threads chosen by trials
("Performance Tuning": otherwise "the default DALI configuration performs well out of the box"), the whole list shuffled
after each epoch, `crop_mirror_normalize` for flip and scale, the tensors viewed and not copied. DALI's CPU decoder
cannot decode at a fraction of the size. With remedies, JPEG's inverse transform is the faster one, and the resize is
plain bilinear; DALI's own default averages over all pixels of the larger image.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types

from unstall.benchmarks.evidence.peers.loaders.work import (
    BATCH,
    FLIP_PROBABILITY,
    SHEAR_DEGREES,
    SIDE,
    ZOOM_RANGE,
    Endless,
    Job,
    Loader,
)

# DALI's own default.
_PREFETCH = 2


def cold(job: Job) -> Loader:
    return _loader(job, remedied=False)


def remedied(job: Job) -> Loader:
    return _loader(job, remedied=True)


def _loader(job: Job, *, remedied: bool) -> Loader:
    @pipeline_def(batch_size=BATCH, num_threads=int(job.workers or 1), device_id=None, prefetch_queue_depth=_PREFETCH)
    def described() -> Any:
        encoded, labels = fn.readers.file(
            files=list(job.paths), labels=list(job.labels), shuffle_after_epoch=True, pad_last_batch=True
        )
        images = fn.decoders.image(encoded, device="cpu", output_type=types.RGB, use_fast_idct=remedied)
        linear = types.INTERP_LINEAR
        images = fn.resize(images, size=(SIDE, SIDE), interp_type=linear, antialias=not remedied)
        centre = (SIDE / 2, SIDE / 2)
        zoom = fn.random.uniform(range=(1 - ZOOM_RANGE, 1 + ZOOM_RANGE), shape=[2])
        shear = fn.random.uniform(range=(-SHEAR_DEGREES, SHEAR_DEGREES))
        matrix = fn.transforms.scale(scale=zoom, center=centre)
        matrix = fn.transforms.shear(matrix, angles=fn.stack(shear, types.Constant(0.0)), center=centre)
        images = fn.warp_affine(images, matrix=matrix, size=(SIDE, SIDE), interp_type=linear)
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="HWC",
            mean=[0.0] * 3,
            std=[255.0] * 3,
            mirror=fn.random.coin_flip(probability=FLIP_PROBABILITY),
        )
        return images, labels

    pipeline = described()
    pipeline.build()
    return Endless(_batches(pipeline, job), per_epoch=job.batches, buffered=_PREFETCH)


def _batches(pipeline: Any, job: Job) -> Iterator[tuple[Any, Any]]:
    last = job.images - (job.batches - 1) * BATCH
    while True:
        for number in range(job.batches):
            images, labels = (np.asarray(part.as_tensor()) for part in pipeline.run())
            # Drops the padding of an epoch's last batch, as DALI's iterators do (`LastBatchPolicy.PARTIAL`).
            held = last if number == job.batches - 1 else BATCH
            yield images[:held], labels[:held].reshape(-1)
