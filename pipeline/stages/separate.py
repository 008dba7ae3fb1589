"""Makes batches whose images are decoded, resized and then augmented: two resamplings, by OpenCV or albumentations.

No TensorFlow here: worker processes import this module.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.stages.compose import ComposedBatches, Empty
from unstall.pipeline.stages.opencv_decode import OpenCVDecoder
from unstall.pipeline.stages.warp import WARPS

_INTERPOLATION = {"bilinear": cv2.INTER_LINEAR, "nearest": cv2.INTER_NEAREST_EXACT}


class SeparateBatches:
    """Makes batches of a source's images, each resized to `image_size` before its draw is applied."""

    def __init__(self, source: ImageSource, config: PipelineConfig) -> None:
        self._decode = OpenCVDecoder(source, config)
        self._size = config.image_size
        self._interpolation = _INTERPOLATION[config.interpolation]
        self._warp = None if config.augmentation is None else WARPS[config.augment_with](config.augmentation)

    def plan(self, indices: NDArray[np.int64], matrices: NDArray[np.float32]) -> NDArray[np.generic]:
        """Returns the map by which each image is warped once it is resized, (images, 2, 3): the draw as it is."""
        return matrices

    def __call__(
        self,
        indices: NDArray[np.int64],
        matrices: NDArray[np.float32],
        plan: NDArray[np.generic] | None = None,
        empty: Empty = np.empty,
    ) -> NDArray[np.uint8]:
        """Returns (batch, height, width, 3) uint8.

        The arguments are those of `ComposedBatches`; `plan` is the matrices once more, and not used.
        """
        height, width = self._size
        images = empty((len(indices), height, width, 3), np.uint8)
        for image, matrix, target in zip(self._decode.each(indices), matrices, images, strict=True):
            fits = image.shape[:2] == self._size
            resized = image if fits else cv2.resize(image, (width, height), interpolation=self._interpolation)
            if self._warp is None:
                target[...] = resized
            else:
                self._warp(resized, matrix, target)
        return images


def opencv_batches(source: ImageSource, config: PipelineConfig) -> ComposedBatches | SeparateBatches:
    """Returns what makes the batches of a config whose images OpenCV decodes."""
    return ComposedBatches(source, config) if config.composed else SeparateBatches(source, config)
