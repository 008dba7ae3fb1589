"""Reads and decodes a source's images with OpenCV, which releases Python's lock while it works.

No TensorFlow here: worker processes import this module.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.config import PipelineConfig
from pipeline.sources.source import ImageSource
from pipeline.sources.stored import MappedImages

# Since 4.11 OpenCV can decode to red, green, blue; images decoded by an older version are converted.
_GIVES_RGB = hasattr(cv2, "IMREAD_COLOR_RGB")
_COLOUR: int = (cv2.IMREAD_COLOR_RGB if _GIVES_RGB else cv2.IMREAD_COLOR) | cv2.IMREAD_IGNORE_ORIENTATION
# A GIF of one pixel, to find out whether this OpenCV reads the format: 4.11 and older versions do not.
_GIF = b"GIF89a\1\0\1\0\x80\0\0\xff\xff\xff\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
READS_GIF = cv2.imdecode(np.frombuffer(_GIF, np.uint8), cv2.IMREAD_COLOR) is not None
# OpenCV's flags for decoding a JPEG at a fraction of its size. They stand here as numbers because cv2 has names for
# them only in combination with blue, green, red.
_REDUCED = {1: 0, 2: 16, 4: 32, 8: 64}
# Files that do not fit into this buffer are read a second time. Photos of 400 pixels a side have some 23 KB.
_BUFFER_BYTES = 1 << 20


class OpenCVDecoder:
    """Returns any image of a source by its index. Safe in threads: each reads into a buffer of its own.

    Attributes:
      sizes: (images, 2) int32, the height and width that each image is expected to have; 0 where unknown. A file
        that was changed since the scan has another size.
      sizes_hold: whether every image is certain to have its expected size, because the source has no files to change.
    """

    def __init__(self, source: ImageSource, config: PipelineConfig) -> None:
        self._source = source
        self._config = config
        self._paths = source.paths
        self._arrays = source.arrays
        self._thread = threading.local()
        self._mapped = source.arrays if isinstance(source.arrays, MappedImages) else None
        self._flags = array("h")
        self.sizes_hold = source.arrays is not None
        self.sizes = source.jpeg_sizes
        if source.arrays is not None:
            self.sizes = np.broadcast_to(np.array(source.arrays.shape[1:3], np.int32), (source.images, 2))
        elif config.decode == "scaled":
            ratios = decode_ratios(source.jpeg_sizes, config.image_size)
            self._flags = array("h", (_COLOUR | _REDUCED[ratio] for ratio in ratios.tolist()))
            self.sizes = (-(-source.jpeg_sizes // ratios[:, np.newaxis])).astype(np.int32)
        else:
            self._flags = array("h", [_COLOUR]) * source.images

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenCVDecoder, (self._source, self._config)  # thread-local buffers cannot be pickled

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

    def each(self, indices: NDArray[np.int64], ratios: NDArray[np.int64] | None = None) -> Iterator[NDArray[np.uint8]]:
        """Yields several images, the same as single calls return.

        Args:
          ratios: (images,), by which JPEGs are divided in decoding; None for those of whole images.
        """
        if self._mapped is not None:
            return self._mapped.each(indices)
        if ratios is None:
            return map(self, indices.tolist())
        return map(self, indices.tolist(), [_COLOUR | _REDUCED[ratio] for ratio in ratios.tolist()])

    def decode(self, index: int, encoded: NDArray[np.uint8], flags: int | None = None) -> NDArray[np.uint8]:
        """Decodes the bytes of one of the source's files.

        Raises:
          ValueError: if OpenCV cannot.
        """
        flags = self._flags[index] if flags is None else flags
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


def decode_ratios(sizes: NDArray[Any], image_size: tuple[int, int], *, rounded_up: bool = True) -> NDArray[np.int64]:
    """Returns the largest of 8, 4, 2, 1 by which each JPEG can be divided in decoding and still have `image_size`.

    Args:
      sizes: (images, 2), height and width, of the image or of the crop that is used of it; 0 for an image that is no
        JPEG, which is decoded at its full size.
      image_size: (height, width).
      rounded_up: whether a part of a pixel counts as a pixel. libjpeg rounds up, so that ceil(side / ratio) pixels of a
        whole image remain; a crop of the decoded image has no more than side / ratio.
    Returns:
      (images,) int64.
    """
    ratios = np.ones(len(sizes), np.int64)
    for ratio in (2, 4, 8):
        left = sizes / ratio
        ratios[np.all((np.ceil(left) if rounded_up else left) >= image_size, axis=1)] = ratio
    return ratios
