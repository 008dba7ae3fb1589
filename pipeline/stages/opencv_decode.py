"""Reads and decodes a source's images with OpenCV, which releases Python's lock while it works.

No TensorFlow here: worker processes import this module.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.sources.stored import MappedImages

# Since 4.11 OpenCV can decode to red, green, blue; images decoded by an older version are converted.
_GIVES_RGB = hasattr(cv2, "IMREAD_COLOR_RGB")
_COLOUR: int = (cv2.IMREAD_COLOR_RGB if _GIVES_RGB else cv2.IMREAD_COLOR) | cv2.IMREAD_IGNORE_ORIENTATION
# A GIF of one pixel, to find out whether this OpenCV reads the format: 4.11 and older versions do not.
_GIF = b"GIF89a\1\0\1\0\x80\0\0\xff\xff\xff\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
READS_GIF = cv2.imdecode(np.frombuffer(_GIF, np.uint8), cv2.IMREAD_COLOR) is not None
# OpenCV's flags for decoding a JPEG at 1/1, 1/2, 1/4 and 1/8 of its sides. The numbers stand here because cv2 has names
# for them only in combination with blue, green, red.
_FLAGS = {1: _COLOUR, 2: _COLOUR | 16, 4: _COLOUR | 32, 8: _COLOUR | 64}
# Files that do not fit into this buffer are read a second time. Photos of 400 pixels a side have some 23 KB.
_BUFFER_BYTES = 1 << 20


class OpenCVDecoder:
    """Returns any image of a source by its index. Safe in threads: each reads into a buffer of its own.

    Attributes:
      sizes_hold: whether every image is certain to have its expected size, because the source has no files to change.
    """

    def __init__(self, source: ImageSource, config: PipelineConfig) -> None:
        self._source = source
        self._config = config
        self._paths = source.paths
        self._arrays = source.arrays
        self._thread = threading.local()
        self._mapped = source.arrays if isinstance(source.arrays, MappedImages) else None
        self.sizes_hold = source.arrays is not None
        self._ratios: bytes | None = None  # a byte an image, the divisor of its sides; None: all are decoded whole
        if config.decode == "scaled" and source.arrays is None:
            self._ratios = decode_ratios(source.jpeg_sizes, config.image_size).tobytes()

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenCVDecoder, (self._source, self._config)  # thread-local buffers cannot be pickled

    def sizes_of(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
        """Returns the height and width that images are expected to have, (images, 2); 0 where unknown.

        A file that was changed since the scan has another size.
        """
        if self._arrays is not None:
            return np.broadcast_to(np.array(self._arrays.shape[1:3], np.int32), (len(indices), 2))
        sizes: NDArray[np.int32] = self._source.jpeg_sizes[indices]
        if self._ratios is None:
            return sizes
        return -(-sizes // np.frombuffer(self._ratios, np.uint8)[indices, np.newaxis])

    def __call__(self, index: int, flags: int | None = None) -> NDArray[np.uint8]:
        """Returns one image, (height, width, 3) uint8 in RGB.

        Args:
          flags: OpenCV's, for another fraction than that of the whole image.
        Raises:
          ValueError: if OpenCV cannot decode it; the message names the file without the source's folder.
          OSError: if the file cannot be read.
        """
        if self._arrays is not None:
            return self._arrays[index]
        if self._source.records is not None:
            return self.decode(index, np.frombuffer(self._source.records[index], np.uint8), flags)
        return self.decode(index, self._read(self._paths[index]), flags)

    def each(self, indices: NDArray[np.int64], ratios: NDArray[np.uint8] | None = None) -> Iterator[NDArray[np.uint8]]:
        """Yields several images, the same as single calls return.

        Args:
          ratios: (images,), by which JPEGs are divided in decoding; None for those of whole images.
        """
        if self._mapped is not None:
            return self._mapped.each(indices)
        if ratios is None:
            return map(self, indices.tolist())
        return map(self, indices.tolist(), [_FLAGS[ratio] for ratio in ratios.tolist()])

    def decode(self, index: int, encoded: NDArray[np.uint8], flags: int | None = None) -> NDArray[np.uint8]:
        """Decodes the bytes of one of the source's files.

        Raises:
          ValueError: if OpenCV cannot.
        """
        if flags is None:
            flags = _FLAGS[1 if self._ratios is None else self._ratios[index]]
        image: Any = cv2.imdecode(encoded, flags) if len(encoded) else None  # OpenCV raises on an empty file
        if image is None:
            raise ValueError(f"{self._source.files[index]} cannot be decoded by OpenCV.")
        return image if _GIVES_RGB else cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)

    def _read(self, path: str) -> NDArray[np.uint8]:
        """Returns a file's bytes, in a buffer that the thread's next call overwrites.

        Takes a third of the time of `np.fromfile`, which creates a Python file object and allocates memory.
        """
        buffer: NDArray[np.uint8] | None = getattr(self._thread, "buffer", None)
        if buffer is None:
            buffer = self._thread.buffer = np.empty(_BUFFER_BYTES, np.uint8)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            size_bytes = os.readv(descriptor, [buffer.data])
        finally:
            os.close(descriptor)
        return buffer[:size_bytes] if size_bytes < _BUFFER_BYTES else np.fromfile(path, np.uint8)


def decode_ratios(sizes: NDArray[Any], image_size: tuple[int, int], *, rounded_up: bool = True) -> NDArray[np.uint8]:
    """Returns the largest of 8, 4, 2, 1 by which each JPEG can be divided in decoding and still have `image_size`.

    Args:
      sizes: (images, 2), height and width, of the image or of the crop that is used of it; 0 for an image that is no
        JPEG, which is decoded at its full size.
      image_size: (height, width).
      rounded_up: whether a part of a pixel counts as a pixel. libjpeg rounds up, so that ceil(side / ratio) pixels of a
        whole image remain; a crop of the decoded image has no more than side / ratio.
    Returns:
      (images,) uint8.
    """
    ratios, least = np.ones(len(sizes), np.uint8), np.array(image_size)
    for ratio in (2, 4, 8):
        # ceil(side / ratio) is at least n if side / ratio is above n - 1.
        enough = sizes > (least - 1) * ratio if rounded_up else sizes >= least * ratio
        ratios[enough.all(axis=1)] = ratio
    return ratios
