"""Images in files that hold many: pixels mapped into memory, and TFRecord shards.

Both are indexed like an array, and pickled by path, never by value.
"""

from __future__ import annotations

import functools
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from unstall.pipeline.draws import block_windows

# A block is large enough for a disk to read it at its sequential rate. The images of a window of blocks are shuffled
# together: 64 MB in memory.
BLOCK_BYTES = 1 << 20
WINDOW_BLOCKS = 64
# A larger part of the free memory might not stay in the page cache: the file would be read page by page in every epoch.
_MEMORY_RATIO = 0.5


class MappedImages:
    """Images in one file that is mapped into memory read-only; only images that are used are read.

    Image `k` is row `rows[k]` of the file: the file's order is random, so that neighbours are of all classes, and
    indices follow the source's order.

    Args:
      path: the file.
      shape: (rows, height, width, 3) of the file.
      dtype: "uint8" or "float32".
      rows: (images,) int64, the row of each image.
    Attributes:
      shape: (images, height, width, 3).
      fits_in_memory: whether the file can stay in the page cache, so that its images can come in any order. Decided
        once, when the file is opened: processes forked later must agree on the order, whatever memory is free by then.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: str, rows: NDArray[np.int64]) -> None:
        self.path = path
        self.rows = rows
        self._stored_shape = shape
        self._map = _mapped(path)
        self._stored = np.frombuffer(self._map, dtype).reshape(shape)
        self.shape = (len(rows), *shape[1:])
        self.dtype = self._stored.dtype
        self.fits_in_memory = self.nbytes <= _MEMORY_RATIO * _free_bytes()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Returns one image without a copy, or a copy of several."""
        return self._stored[self.rows[index]]

    def each(self, indices: NDArray[np.int64]) -> Iterator[np.ndarray]:
        """Yields several images without a copy."""
        return map(self._stored.__getitem__, self.rows[indices].tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedImages, (self.path, self._stored_shape, self.dtype.name, self.rows)

    @property
    def nbytes(self) -> int:
        return len(self) * self._row_bytes

    def part(self, chosen: NDArray[np.int64]) -> MappedImages:
        """Returns some of the images, in the same file."""
        return MappedImages(self.path, self._stored_shape, self.dtype.name, self.rows[chosen])

    def block_windows(self, *, seed: int, epoch: int) -> Iterator[NDArray[np.int64]]:
        """Yields one epoch's indices, a window of blocks at a time; see `augmentation.block_windows`."""
        in_file = np.argsort(self.rows)
        windows = block_windows(
            len(self),
            images_per_block=max(1, BLOCK_BYTES // self._row_bytes),
            blocks_in_window=WINDOW_BLOCKS,
            seed=seed,
            epoch=epoch,
        )
        return (in_file[window] for window in windows)

    def read_ahead(self, windows: Iterator[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
        """Yields the windows. Tells the system a window ahead which blocks to read, so that it reads larger pieces."""
        ahead = next(windows, None)
        self._will_need(ahead)
        while ahead is not None:
            window, ahead = ahead, next(windows, None)
            self._will_need(ahead)
            yield window

    @property
    def _row_bytes(self) -> int:
        return int(np.prod(self._stored_shape[1:])) * self.dtype.itemsize

    def _will_need(self, indices: NDArray[np.int64] | None) -> None:
        if indices is None:
            return
        rows = np.sort(self.rows[indices])
        breaks = np.flatnonzero(np.diff(rows) > 1) + 1
        for run in np.split(rows, breaks):
            begin = int(run[0]) * self._row_bytes // mmap.PAGESIZE * mmap.PAGESIZE
            end = min((int(run[-1]) + 1) * self._row_bytes, len(self._map))
            self._map.madvise(mmap.MADV_WILLNEED, begin, end - begin)


class Records:
    """Encoded images in TFRecord shards.

    Attributes:
      paths: of the shards.
      shard, offset, length: (images,) int64: which shard holds an image's bytes, where they begin, and how many.
      whole: whether these are all images of the shards, so that the shards can be read from front to back.
    """

    def __init__(
        self,
        paths: tuple[Path, ...],
        shard: NDArray[np.int64],
        offset: NDArray[np.int64],
        length: NDArray[np.int64],
        *,
        whole: bool = True,
    ) -> None:
        self.paths = paths
        self.shard = shard
        self.offset = offset
        self.length = length
        self.whole = whole

    def __len__(self) -> int:
        return len(self.shard)

    def __getitem__(self, index: int) -> bytes:
        """Returns the encoded bytes of one image."""
        begin = self.offset[index]
        return self._maps[self.shard[index]][begin : begin + self.length[index]]

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(Records, whole=self.whole), (self.paths, self.shard, self.offset, self.length)

    @functools.cached_property
    def _maps(self) -> list[mmap.mmap]:
        return [_mapped(path) for path in self.paths]

    def part(self, chosen: NDArray[np.int64]) -> Records:
        """Returns some of the images, in the same shards."""
        return Records(self.paths, self.shard[chosen], self.offset[chosen], self.length[chosen], whole=False)


def _free_bytes() -> int:
    return psutil.virtual_memory().available


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
