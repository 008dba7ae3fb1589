"""Composes an image's resize and its random draw into one affine map, so that each image is resampled only once.

An image that is resized and then warped is blurred twice, and takes two passes. Here OpenCV decodes, and one
`warpAffine` (or one `resize`, where the draw is a crop) writes into the batch's array. One Python call makes one batch
or several, so that little time is spent holding Python's lock between OpenCV's calls, which release it. No TensorFlow
here: worker processes import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import DTypeLike, NDArray

from unstall.pipeline.augmentation import Augmentation
from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.stages.opencv_decode import OpenCVDecoder, decode_ratios
from unstall.pipeline.stages.warp import BORDER

# Returns an array of this shape and type, with any contents, as `np.empty` does.
Empty = Callable[[tuple[int, ...], DTypeLike], NDArray[Any]]


# OpenCV 4.10 cannot warp an image with a side of this many pixels or more.
_WIDEST = 32_767
_FLAGS = cv2.WARP_INVERSE_MAP | cv2.INTER_LINEAR


class ComposedBatches:
    """Makes batches of a source's images, each drawn from its decoded pixels by one affine map."""

    def __init__(self, source: ImageSource, config: PipelineConfig) -> None:
        assert config.augmentation is not None
        self._decode = OpenCVDecoder(source, config)
        # A crop is decoded at a fraction that leaves the crop enough pixels: each draw has its own.
        by_draw = config.augmentation.crops and config.decode == "scaled" and source.arrays is None
        self._jpeg_sizes = source.jpeg_sizes if by_draw else None
        self._size = config.image_size
        self._border = BORDER[config.augmentation.fill_mode]
        self._only_crops = only_crops(config.augmentation)

    def plan(self, indices: NDArray[np.int64], matrices: NDArray[np.float32]) -> NDArray[np.generic]:
        """Returns the map or the box by which each image is resampled.

        One call for many batches takes much less time than a call for each batch.

        Args:
          indices: (images,), which images.
          matrices: (images, 2, 3), from output pixels to pixels of the image at `image_size`, as `Draw.affine` returns
            them.
        Returns:
          (images, 2, 3) float64, from output pixels to pixels of the decoded image. Or, where every draw is a crop,
          (images, 4) int64, boxes: the first row, the end of the rows, the first column, the end of the columns.
        """
        return self._plan(matrices, self._sizes_of(indices, self._ratios_of(indices, matrices)))

    def _ratios_of(self, indices: NDArray[np.int64], matrices: NDArray[np.float32]) -> NDArray[np.uint8] | None:
        """Returns by what each JPEG is divided in decoding, (images,), where that depends on its draw; else None."""
        if self._jpeg_sizes is None:
            return None
        crops = np.abs(np.stack([matrices[:, 1, 1], matrices[:, 0, 0]], axis=1)) * self._jpeg_sizes[indices]
        return decode_ratios(crops, self._size, rounded_up=False)

    def _sizes_of(self, indices: NDArray[np.int64], ratios: NDArray[np.uint8] | None) -> NDArray[np.int32]:
        """Returns the sizes of the decoded images, (images, 2)."""
        if self._jpeg_sizes is None or ratios is None:
            return self._decode.sizes_of(indices)
        sizes: NDArray[np.int32] = self._jpeg_sizes[indices]
        return -(-sizes // ratios[:, np.newaxis])

    def _plan(self, matrices: NDArray[np.float32], sizes: NDArray[np.integer[Any]]) -> NDArray[np.generic]:
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
          plan: what `plan` returned for these images; computed here unless given.
          empty: allocates the batch's array.
        """
        height, width = self._size
        images = empty((len(indices), height, width, 3), np.uint8)
        ratios = self._ratios_of(indices, matrices)
        if plan is None:
            plan = self._plan(matrices, self._sizes_of(indices, ratios))
        # `tolist`, because slicing with Python's integers takes half the time of slicing with NumPy's.
        steps: Iterable[Any] = plan.tolist() if self._only_crops else plan
        # Lazily, so that each image is resampled right after it is decoded, while the core's cache still holds it.
        decoded: Iterator[tuple[NDArray[np.uint8], Any]] = zip(self._decode.each(indices, ratios), steps, strict=True)
        if not self._decode.sizes_hold:
            decoded = self._as_they_are(decoded, self._sizes_of(indices, ratios).tolist(), matrices)
        if self._only_crops:
            # A box of whole pixels takes a third of the time of a warp. It is mirrored where it lies: one call that
            # mirrors all of them needs copies of half the batch, in fresh memory.
            mirrored = (matrices[:, 0, 0] < 0).tolist()
            for (image, (top, bottom, left, right)), mirror, target in zip(decoded, mirrored, images, strict=True):
                cv2.resize(image[top:bottom, left:right], (width, height), target, 0, 0, cv2.INTER_LINEAR)
                if mirror:
                    cv2.flip(target, 1, target)
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
        """Yields each image with its map or box, which is computed anew for a file whose image has changed its size."""
        for row, ((image, step), size) in enumerate(zip(decoded, sizes, strict=True)):
            if image.shape[0] != size[0] or image.shape[1] != size[1]:
                step = self._plan(matrices[row : row + 1], np.array([image.shape[:2]]))[0]
            yield image, step


def only_crops(augmentation: Augmentation) -> bool:
    """Whether every draw only cuts a box out of the image, and perhaps mirrors it."""
    return augmentation.crops and augmentation.shear_degrees == 0 and augmentation.zoom_range == 0


def whole_pixels(
    scale: NDArray[np.float64], at: NDArray[np.float64], length: int, sides: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    """Returns the range of whole pixels, at least one, that is nearest to what a map covers along one axis.

    Args:
      scale, at: (images,); output pixel x lies at `scale * x + at`. A mirrored axis has a scale below 0.
      length: the number of output pixels along the axis.
      sides: (images,), the number of pixels of each image along the axis.
    Returns:
      (images, 2): the first pixel, and the end of the range, which is not in it.
    """
    first = at - scale / 2 + 0.5
    last = first + scale * length
    begin = np.clip(np.rint(np.minimum(first, last)).astype(np.int64), 0, sides - 1)
    end = np.clip(np.rint(np.maximum(first, last)).astype(np.int64), begin + 1, sides)
    return np.stack([begin, end], axis=1)


def through_resize(
    matrices: NDArray[np.float32], sizes: NDArray[np.integer[Any]], image_size: tuple[int, int]
) -> NDArray[np.float64]:
    """Turns maps into images resized to `image_size` into maps into the same images as they were decoded.

    Args:
      matrices: (images, 2, 3), for (x, y, 1) column vectors of pixels, whose centres are at whole numbers.
      sizes: (images, 2), height and width of the decoded images.
      image_size: (height, width).
    Returns:
      (images, 2, 3) float64.
    """
    # Sizes in (x, y) order. A pixel's centre lies half a pixel from its edge, before the resize and after it.
    scale = (sizes / image_size)[:, ::-1, np.newaxis]
    composed = matrices * scale
    composed[:, :, 2:] += scale / 2 - 0.5
    return composed


def _warp_wide(image: NDArray[np.uint8], matrix: NDArray[Any], target: NDArray[np.uint8], border: int) -> None:
    """Warps an image whose sides are too long for OpenCV: only every second (third, ...) row and column is used."""
    steps = [-(-side // (_WIDEST - 1)) for side in image.shape[:2]]
    few = np.ascontiguousarray(image[:: steps[0], :: steps[1]])
    few_matrix = np.asarray(matrix, np.float64) / np.array([[steps[1]], [steps[0]]])
    height, width = target.shape[:2]
    cv2.warpAffine(few, few_matrix, (width, height), target, _FLAGS, border)
