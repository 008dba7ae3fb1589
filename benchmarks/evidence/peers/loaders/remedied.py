"""Batches made with every remedy that this project knows, for loaders of other libraries.

Files are read into a kept buffer. A JPEG is decoded at a fraction of the size that the scan saw, so that no header is
read in Python. The order and the draws of an epoch are made at once. A call makes a whole batch of uint8 images, which
become floats only in the process that asked for them, so that fewer bytes pass between processes.

Nothing of `pipeline` is called here: a peer may run under an interpreter that lacks what our own pipelines import.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import Any

import cv2
import numpy as np

from unstall.benchmarks.evidence.peers.loaders.opencv import REDUCED, scaled_ratio
from unstall.benchmarks.evidence.peers.loaders.work import BATCH, FLIP_PROBABILITY, SIDE, Job, draw_affines, draw_crops

# A larger file is read again, by NumPy. Photos of 400 pixels a side have some 23 KB.
_BUFFER_BYTES = 1 << 20
_WARP = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP


class Batches:
    """Makes any batch of any epoch by its number; numbers go on from one epoch into the next.

    Args:
      one_resampling: whether an image is warped from its decoded pixels; or else it is resized first.
    """

    def __init__(self, job: Job, *, one_resampling: bool) -> None:
        self.job = job
        self._labels = np.array(job.labels)
        self._one_resampling = one_resampling
        self._array = np.load(job.array) if job.array else None
        ratios = [scaled_ratio(*size) if all(size) else 1 for size in job.jpeg_sizes]
        self._flags = [REDUCED[ratio] | cv2.IMREAD_IGNORE_ORIENTATION for ratio in ratios]
        self._plans = functools.lru_cache(maxsize=2)(self._plan)
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes that a library starts in a new interpreter make their own.
        return functools.partial(Batches, one_resampling=self._one_resampling), (self.job,)

    def of_epoch(self, epoch: int) -> range:
        """Returns the numbers of an epoch's batches."""
        return range(epoch * self.job.batches, (epoch + 1) * self.job.batches)

    def __call__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns (batch, 64, 64, 3) uint8 images and (batch,) labels."""
        epoch, batch = divmod(number, self.job.batches)
        order, draws, mirrored = self._plans(epoch)
        part = slice(batch * BATCH, (batch + 1) * BATCH)
        rows = order[part]
        images = np.empty((len(rows), SIDE, SIDE, 3), np.uint8)
        if self._array is None:
            for target, row, matrix in zip(images, rows.tolist(), draws[part], strict=True):
                self._warp(self._decoded(row), matrix, target)
            pixels = images.reshape(-1, SIDE, 3)
            cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, pixels)
        else:
            for target, row, box in zip(images, rows.tolist(), draws[part].tolist(), strict=True):
                top, left, height, width = box
                image = self._array[row, top : top + height, left : left + width]
                cv2.resize(image, (SIDE, SIDE), target, 0, 0, cv2.INTER_LINEAR)
            flipped = np.flatnonzero(mirrored[part])
            if len(flipped):
                images[flipped] = cv2.flip(images[flipped].reshape(-1, SIDE, 3), 1).reshape(-1, SIDE, SIDE, 3)
        return images, self._labels[rows]

    def _plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns an epoch's order, its maps or boxes in that order, and which of the images are mirrored."""
        random = np.random.default_rng((epoch, self.job.images))
        order = random.permutation(self.job.images)
        if self._array is None:
            return order, draw_affines(random, len(order)), np.zeros(len(order), bool)
        return order, draw_crops(random, len(order)), random.random(len(order)) < FLIP_PROBABILITY

    def _decoded(self, row: int) -> np.ndarray:
        """Returns (height, width, 3) uint8: blue, green, red, as OpenCV decodes fastest."""
        path = self.job.paths[row]
        buffer = getattr(self._local, "buffer", None)
        if buffer is None:
            buffer = self._local.buffer = np.empty(_BUFFER_BYTES, np.uint8)
        file = os.open(path, os.O_RDONLY)
        try:
            size_bytes = os.readv(file, [buffer.data])
        finally:
            os.close(file)
        encoded = buffer[:size_bytes] if size_bytes < _BUFFER_BYTES else np.fromfile(path, np.uint8)
        image: np.ndarray | None = cv2.imdecode(encoded, self._flags[row])
        if image is None:
            raise ValueError(f"{path} cannot be decoded by OpenCV.")
        return image

    def _warp(self, image: np.ndarray, matrix: np.ndarray, target: np.ndarray) -> None:
        if self._one_resampling:
            scale = np.array([[image.shape[1] / SIDE], [image.shape[0] / SIDE]])
            matrix = matrix * scale
            matrix[:, 2:] += scale / 2 - 0.5
        else:
            image = cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
        cv2.warpAffine(image, matrix, (SIDE, SIDE), target, _WARP, cv2.BORDER_REPLICATE)
