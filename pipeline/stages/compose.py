"""One resampling an image: its resize and its draw in one affine map of the decoded pixels.

An image that is resized and then warped is blurred twice, and costs two passes. Here OpenCV decodes, and one
`warpAffine` (or one `resize`, where the draw is a crop) writes into the batch's array; a whole batch is one call, so
that Python does little between the calls that give up its lock. No TensorFlow here: worker processes import this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import DTypeLike, NDArray

from pipeline.augmentation import Augmentation
from pipeline.config import PipelineConfig
from pipeline.sources.source import ImageSource
from pipeline.stages.opencv_decode import OpenCVDecoder
from pipeline.stages.warp import BORDER

# Makes an array of a shape and a type, whatever is in it.
Empty = Callable[[tuple[int, ...], DTypeLike], NDArray[Any]]


# OpenCV 4.10 warps nothing that has so many pixels a side.
_WIDEST = 32_767
_FLAGS = cv2.WARP_INVERSE_MAP | cv2.INTER_LINEAR


class ComposedBatches:
    """Makes batches of a source's images, each drawn from its decoded pixels by one affine map."""

    def __init__(self, source: ImageSource, config: PipelineConfig) -> None:
        assert config.augmentation is not None
        self._decode = OpenCVDecoder(source, config)
        self._size = config.image_size
        self._border = BORDER[config.augmentation.fill_mode]
        self._only_crops = only_crops(config.augmentation)

    def plan(self, indices: NDArray[np.int64], matrices: NDArray[np.float32]) -> NDArray[np.generic]:
        """Returns how images are to be drawn; for those of a whole epoch in much less time than batch by batch.

        Args:
          indices: (images,), which images.
          matrices: (images, 2, 3), from output pixels to those of the image at `image_size`: what `Draw.affine` gives.
        Returns:
          (images, 2, 3) float64, from output pixels to those of the decoded image; or, where every draw is a crop,
          (images, 4) int64, the box: first row, the one behind the last; first column, the one behind the last.
        """
        return self._plan(matrices, self._decode.sizes[indices])

    def _plan(self, matrices: NDArray[np.float32], sizes: NDArray[np.int64]) -> NDArray[np.generic]:
        height, width = self._size
        composed = through_resize(matrices, sizes, self._size)
        if not self._only_crops:
            return composed
        rows = whole_pixels(composed[:, 1, 1], composed[:, 1, 2], height, sizes[:, 0])
        columns = whole_pixels(composed[:, 0, 0], composed[:, 0, 2], width, sizes[:, 1])
        return np.concatenate([rows, columns], axis=1)

    def __call__(
        self,
        indices: NDArray[np.int64],
        matrices: NDArray[np.float32],
        plan: NDArray[np.generic] | None = None,
        empty: Empty = np.empty,
    ) -> NDArray[np.uint8]:
        """Returns (batch, height, width, 3) uint8.

        Args:
          indices, matrices: (batch,) and (batch, 2, 3), as for `plan`.
          plan: what `plan` returns for these images, if that is known.
          empty: makes the array.
        """
        height, width = self._size
        images = empty((len(indices), height, width, 3), np.uint8)
        if plan is None:
            plan = self.plan(indices, matrices)
        # Boxes as Python's integers: slicing with NumPy's takes twice as long.
        steps: Iterable[Any] = plan.tolist() if self._only_crops else plan
        # An image is resampled right after it is decoded, while the core's cache still holds it.
        decoded: Iterator[tuple[NDArray[np.uint8], Any]] = zip(self._decode.each(indices), steps, strict=True)
        if not self._decode.sizes_hold:
            decoded = self._as_they_are(decoded, self._decode.sizes[indices].tolist(), matrices)
        if self._only_crops:
            # A box of whole pixels takes a third of the time of a warp.
            for (image, (top, bottom, left, right)), target in zip(decoded, images, strict=True):
                cv2.resize(image[top:bottom, left:right], (width, height), target, 0, 0, cv2.INTER_LINEAR)
            if len(mirrored := np.flatnonzero(matrices[:, 0, 0] < 0)):
                # One call for all of them.
                images[mirrored] = cv2.flip(images[mirrored].reshape(-1, width, 3), 1).reshape(-1, height, width, 3)
        else:
            for (image, matrix), target in zip(decoded, images, strict=True):
                try:
                    cv2.warpAffine(image, matrix, (width, height), target, _FLAGS, self._border)
                except cv2.error:
                    if max(image.shape) < _WIDEST:
                        raise
                    _warp_wide(image, matrix, target, self._border)
        return images

    def _as_they_are(
        self, decoded: Iterator[tuple[NDArray[np.uint8], Any]], sizes: Sequence[Any], matrices: NDArray[np.float32]
    ) -> Iterator[tuple[NDArray[np.uint8], Any]]:
        """Yields images and how they are to be drawn, planned anew for a file that has changed its size."""
        for row, ((image, step), size) in enumerate(zip(decoded, sizes, strict=True)):
            if image.shape[0] != size[0] or image.shape[1] != size[1]:
                step = self._plan(matrices[row : row + 1], np.array([image.shape[:2]]))[0]
            yield image, step


def only_crops(augmentation: Augmentation) -> bool:
    """Whether every draw is a box of the image, mirrored or not."""
    return augmentation.crops and augmentation.shear_degrees == 0 and augmentation.zoom_range == 0


def whole_pixels(
    scale: NDArray[np.float64], at: NDArray[np.float64], length: int, sides: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the whole pixels nearest to the stretch that a map of one axis covers, at least one of them.

    Args:
      scale, at: (images,); output pixel x lies at `scale * x + at`. A mirrored axis has a scale below 0.
      length: output pixels.
      sides: (images,), pixels of the images.
    Returns:
      (images, 2): the first pixel, and the one behind the last.
    """
    first = at - scale / 2 + 0.5
    last = first + scale * length
    begin = np.clip(np.rint(np.minimum(first, last)).astype(np.int64), 0, sides - 1)
    end = np.clip(np.rint(np.maximum(first, last)).astype(np.int64), begin + 1, sides)
    return np.stack([begin, end], axis=1)


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


def _warp_wide(image: NDArray[np.uint8], matrix: NDArray[Any], target: NDArray[np.uint8], border: int) -> None:
    """Warps an image of more pixels a side than OpenCV takes, from every second, third ... of its rows and columns."""
    steps = [-(-side // (_WIDEST - 1)) for side in image.shape[:2]]
    few = np.ascontiguousarray(image[:: steps[0], :: steps[1]])
    few_matrix = np.asarray(matrix, np.float64) / np.array([[steps[1]], [steps[0]]])
    height, width = target.shape[:2]
    cv2.warpAffine(few, few_matrix, (width, height), target, _FLAGS, border)
