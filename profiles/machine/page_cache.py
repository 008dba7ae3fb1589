"""The page cache of Linux: what of some files it holds, how to empty it of them, and how fast they are read."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

from profiles import clock

Path = str | os.PathLike[str]

# More than this of the files' pages left makes them not cold.
_LEFT_RATIO = 0.05
# Pages that are not on the disk yet stay until they are; asking for them to be dropped starts the writing.
_TRIES, _BETWEEN_TRIES_S = 10, 0.1  # a second
_CHUNK_BYTES = 2**20
# What is read to tell the storage's rate, and for how long.
_SAMPLE_BYTES, _SAMPLE_S = 64 * 2**20, 5.0


class PageCacheError(Exception):
    """The page cache cannot be looked at or emptied; the message says why, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRates:
    """How fast files are read one after another, by one thread.

    Attributes:
      cold_bytes_per_sec: after their pages were dropped: the storage.
      warm_bytes_per_sec: read again: the page cache.
      bytes_per_file: mean size of the files.
    """

    cold_bytes_per_sec: float
    warm_bytes_per_sec: float
    bytes_per_file: float


def cached_ratio(paths: Sequence[Path]) -> float:
    """Returns the part of the files' pages that the page cache holds; 0 where there is no page.

    Files that are empty or cannot be opened count for nothing. Linux tells only who owns a file or may write it: to
    others, every page seems to be cached.

    Raises:
      PageCacheError: if this is not Linux.
    """
    _check_linux()
    cached = pages = 0
    for descriptor in _opened(paths):
        resident = _resident(descriptor)
        cached += int(resident.sum())
        pages += len(resident)
    return cached / pages if pages else 0.0


def drop(paths: Sequence[Path]) -> float:
    """Asks Linux to drop the files' pages, and checks that it did.

    Returns:
      The cached ratio that is left.
    Raises:
      PageCacheError: if more than 5 % stays, or this is not Linux.
    """
    _check_linux()
    for _ in range(_TRIES):
        for descriptor in _opened(paths):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        left = cached_ratio(paths)
        if left <= _LEFT_RATIO:
            return left
        clock.sleep_until_ns(clock.now_ns() + int(_BETWEEN_TRIES_S * 1e9))
    raise PageCacheError(
        f"{left:.0%} of the files stay in the page cache: they lie on a RAM disk (tmpfs), another process has them "
        "mapped, their filesystem ignores the request, or they are another user's"
    )


def read_bytes_per_sec(paths: Sequence[Path], *, limit_s: float = math.inf) -> float:
    """Reads the files one after another and returns the bytes per second.

    Args:
      paths: files; those that cannot be opened are passed over.
      limit_s: when to stop, be it in the midst of them.
    Raises:
      PageCacheError: if there is no byte to read.
    """
    buffer = bytearray(_CHUNK_BYTES)
    total_bytes = 0
    begin_ns = clock.now_ns()
    for descriptor in _opened(paths):
        while (passed_s := (clock.now_ns() - begin_ns) / 1e9) < limit_s and (count := _read(descriptor, buffer)):
            total_bytes += count
        if passed_s >= limit_s:
            break
    if not total_bytes:
        raise PageCacheError("there is no byte to read in the files")
    return total_bytes / (clock.now_ns() - begin_ns) * 1e9


def measure_storage(paths: Sequence[Path]) -> StorageRates:
    """Reads the first of the files, 64 MB at most, cold and warm; they are in the page cache afterwards.

    Raises:
      PageCacheError: if their pages cannot be dropped.
    """
    sizes = [_size(path) for path in paths]
    some = [path for path, before in zip(paths, np.cumsum([0, *sizes]), strict=False) if before < _SAMPLE_BYTES]
    with left_warm(some):
        drop(some)
        cold_bytes_per_sec = read_bytes_per_sec(some, limit_s=_SAMPLE_S)
    return StorageRates(
        cold_bytes_per_sec=cold_bytes_per_sec,
        warm_bytes_per_sec=read_bytes_per_sec(some, limit_s=_SAMPLE_S),
        bytes_per_file=sum(sizes) / len(sizes),
    )


@contextmanager
def left_warm(paths: Sequence[Path]) -> Iterator[None]:
    """Reads the files to their end in any case, so that whoever is measured next finds them in the page cache."""
    try:
        yield
    finally:
        with suppress(PageCacheError):
            read_bytes_per_sec(paths)


def _check_linux() -> None:
    if sys.platform != "linux":
        raise PageCacheError(f"only Linux tells what its page cache holds. Received: {sys.platform}")


def _opened(paths: Sequence[Path]) -> Iterator[int]:
    """Yields a descriptor of each regular file that can be opened, and closes it."""
    for path in paths:
        try:
            if not os.path.isfile(path):  # to open a pipe would wait for its other end
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _read(descriptor: int, buffer: bytearray) -> int:
    try:
        return os.readv(descriptor, [buffer])
    except OSError as error:
        raise PageCacheError(f"a file cannot be read: {error.strerror}") from error


def _resident(descriptor: int) -> np.ndarray:
    """Returns which pages of a file are in memory: (pages,) bool."""
    size = os.fstat(descriptor).st_size
    pages = np.zeros(math.ceil(size / mmap.PAGESIZE), np.uint8)
    if not size:
        return pages.astype(bool)
    try:
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped:
            content = np.frombuffer(mapped, np.uint8)  # mapping reads nothing
            failed = ctypes.CDLL(None, use_errno=True).mincore(
                ctypes.c_void_p(content.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(pages.ctypes.data)
            )
            del content  # or it could not be unmapped
    except OSError as error:
        raise PageCacheError(f"a file cannot be mapped, to see what is cached of it: {error.strerror}") from error
    if failed:
        raise PageCacheError(f"Linux does not tell what is cached: {os.strerror(ctypes.get_errno())}")
    return (pages & 1).astype(bool)  # the other bits are reserved
