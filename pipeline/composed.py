"""One resampling an image: its resize and its draw in one affine map of the decoded pixels.

An image that is resized and then warped is blurred twice, and costs two passes. Here OpenCV decodes, and one
`warpAffine` (or one `resize`, where the draw is a crop) writes into the batch's array; a whole batch is one call, so
that Python does little between the calls that give up its lock. No TensorFlow here: worker processes import this.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.augmentation import Augmentation
from pipeline.config import PipelineConfig
from pipeline.opencv_decode import OpenCVDecoder
from pipeline.sources import ImageSource
from pipeline.warp import BORDER

_FLAGS = cv2.WARP_INVERSE_MAP | cv2.INTER_LINEAR


class ComposedBatches:
    """Makes batches of a source's images, each drawn from its decoded pixels by one affine map."""

    def __init__(self, source: ImageSource, config: PipelineConfig) -> None:
        assert config.augmentation is not None
        self._decode = OpenCVDecoder(source, config)
        self._size = config.image_size
        self._border = BORDER[config.augmentation.fill_mode]
        self._resample = self._crop if only_crops(config.augmentation) else self._warp

    def __call__(self, indices: NDArray[np.int64], matrices: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Returns (batch, height, width, 3) uint8.

        Args:
          indices: (batch,), which images.
          matrices: (batch, 2, 3), from output pixels to those of the image at `image_size`: what `Draw.affine` gives.
        """
        images = np.empty((len(indices), *self._size, 3), np.uint8)
        sizes = self._decode.sizes[indices]
        composed = through_resize(matrices, sizes, self._size)
        for row, (index, size) in enumerate(zip(indices.tolist(), sizes.tolist(), strict=True)):
            decoded = self._decode(index)
            height, width = decoded.shape[:2]
            if [height, width] != size:
                composed[row] = through_resize(matrices[row : row + 1], np.array([[height, width]]), self._size)[0]
            self._resample(decoded, composed[row], images[row])
        return images

    def _warp(self, decoded: NDArray[np.uint8], matrix: NDArray[np.float64], target: NDArray[np.uint8]) -> None:
        height, width = self._size
        cv2.warpAffine(decoded, matrix, (width, height), target, _FLAGS, self._border)

    def _crop(self, decoded: NDArray[np.uint8], matrix: NDArray[np.float64], target: NDArray[np.uint8]) -> None:
        """Resizes a box of whole pixels: a third of the time of a warp."""
        height, width = self._size
        (scale_x, _, at_x), (_, scale_y, at_y) = matrix.tolist()
        left, right = _whole(scale_x, at_x, width, decoded.shape[1])
        top, bottom = _whole(scale_y, at_y, height, decoded.shape[0])
        box = decoded[top:bottom, left:right]
        if scale_x > 0:
            cv2.resize(box, (width, height), target, interpolation=cv2.INTER_LINEAR)
        else:
            cv2.flip(cv2.resize(box, (width, height), interpolation=cv2.INTER_LINEAR), 1, target)


def only_crops(augmentation: Augmentation) -> bool:
    """Whether every draw is a box of the image, mirrored or not."""
    return augmentation.crops and augmentation.shear_degrees == 0 and augmentation.zoom_range == 0


def _whole(scale: float, at: float, length: int, side: int) -> tuple[int, int]:
    """Returns the whole pixels nearest to the stretch that a map of one axis covers, at least one of them.

    Args:
      scale, at: output pixel x lies at `scale * x + at`; a mirrored axis has a scale below 0.
      length: output pixels.
      side: pixels of the image.
    """
    first = at - scale / 2 + 0.5
    begin, end = sorted((first, first + scale * length))
    whole = min(max(round(begin), 0), side - 1)
    return whole, min(max(round(end), whole + 1), side)


def through_resize(
    matrices: NDArray[np.float32], sizes: NDArray[np.int64], image_size: tuple[int, int]
) -> NDArray[np.float64]:
    """Returns maps into the decoded images, from maps into the same images resized to `image_size`.

    Args:
      matrices: (images, 2, 3), for (x, y, 1) column vectors of pixels, whose centres are at whole numbers.
      sizes: (images, 2), height and width of the decoded images.
      image_size: (height, width).
    Returns:
      (images, 2, 3) float64.
    """
    # (x, y) order; a pixel's centre lies half a pixel from its edge, before and after.
    scale = (sizes / image_size)[:, ::-1, np.newaxis]
    composed = matrices * scale
    composed[:, :, 2:] += scale / 2 - 0.5
    return composed
