"""The page cache of Linux: how much of some files it holds, how to drop them from it, and how fast they are read."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

from unstall.profiles import clock

Path = str | os.PathLike[str]

# Files count as cold if the page cache holds no more than this part of their pages.
_LEFT_RATIO = 0.05
# Linux drops no page that is not on the disk yet. The request to drop starts the writing, so it is repeated for 1 s.
_TRIES, _BETWEEN_TRIES_S = 10, 0.1
_CHUNK_BYTES = 2**20
# How much is read at most, and for how long, to measure the rate of the storage.
_SAMPLE_BYTES, _SAMPLE_S = 64 * 2**20, 5.0
_LARGEST_BYTES = 10**9


class PageCacheError(Exception):
    """The page cache cannot be read or emptied; the message says why, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRates:
    """How fast one thread reads files one after another.

    Attributes:
      cold_bytes_per_sec: rate of the storage: the files' pages had been dropped.
      warm_bytes_per_sec: rate of the page cache: the files were read a second time.
      bytes_per_file: mean size of the files.
    """

    cold_bytes_per_sec: float
    warm_bytes_per_sec: float
    bytes_per_file: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRate:
    """How fast threads read files side by side, the pages of which had been dropped.

    Attributes:
      readers: threads, each of which reads one file at a time.
      bytes_per_sec, files_per_sec: of all of them together.
    """

    readers: int
    bytes_per_sec: float
    files_per_sec: float


def cached_ratio(paths: Sequence[Path]) -> float:
    """Returns the part of the files' pages that the page cache holds, from 0 to 1; 0 where the files have no page.

    Empty files, and files that cannot be opened, are skipped. Linux answers only the owner of a file and those who may
    write it; for all others every page seems to be cached.

    Raises:
      PageCacheError: if this is not Linux, or a file cannot be mapped.
    """
    _check_linux()
    cached = pages = 0
    for descriptor in _opened(paths):
        resident = _resident(descriptor)
        cached += int(resident.sum())
        pages += len(resident)
    return cached / pages if pages else 0.0


def drop(paths: Sequence[Path]) -> float:
    """Asks Linux to drop the files' pages, and checks that Linux has done so.

    Returns:
      The part of the pages that is still cached, 0.05 at most.
    Raises:
      PageCacheError: if more than 5 % stays cached, or this is not Linux.
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
      paths: files; those that cannot be opened are skipped.
      limit_s: seconds after which reading stops, even in the middle of a file.
    Raises:
      PageCacheError: if there is no byte to read, or a file cannot be read.
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
    """Reads the first of the files, 64 MB at most, cold and then warm. Afterwards the page cache holds these files.

    Raises:
      PageCacheError: if their pages cannot be dropped.
    """
    sizes = [_size(path) for path in paths]
    first_paths = _first(paths)
    with left_warm(first_paths):
        drop(first_paths)
        cold_bytes_per_sec = read_bytes_per_sec(first_paths, limit_s=_SAMPLE_S)
    return StorageRates(
        cold_bytes_per_sec=cold_bytes_per_sec,
        warm_bytes_per_sec=read_bytes_per_sec(first_paths, limit_s=_SAMPLE_S),
        bytes_per_file=sum(sizes) / len(sizes),
    )


def measure_readers(paths: Sequence[Path], readers: Sequence[int]) -> tuple[ReaderRate, ...]:
    """Reads files by several numbers of threads, each number others of the files: 64 MB and 5 s at most.

    Args:
      paths: files, in an order that is no order on the disk. Those above 1 GB are left out: they would be read whole
        afterwards, to be in the page cache again.
      readers: numbers of threads. Where a number has fewer files than threads, so many threads read as there are files.
    Raises:
      PageCacheError: if their pages cannot be dropped, there are too few files, or they cannot be read.
    """
    paths = [path for path in paths if _size(path) <= _LARGEST_BYTES]
    rates: list[ReaderRate] = []
    for number, count in enumerate(readers):
        own = _first(paths[number :: len(readers)])
        if not own:
            raise PageCacheError(f"{len(paths)} files below 1 GB are too few for {len(readers)} measurements")
        count = min(count, len(own))
        if rates and count <= rates[-1].readers:
            continue
        with left_warm(own):
            drop(own)
            rates.append(_read_side_by_side(own, count))
    return tuple(rates)


def _first(paths: Sequence[Path]) -> list[Path]:
    """Returns the first of the files, of so many bytes as are read."""
    sizes = [_size(path) for path in paths]
    return [path for path, before in zip(paths, np.cumsum([0, *sizes]), strict=False) if before < _SAMPLE_BYTES]


def _read_side_by_side(paths: Sequence[Path], readers: int) -> ReaderRate:
    until_ns = clock.now_ns() + int(_SAMPLE_S * 1e9)

    def read(path: Path) -> int:
        """Returns the bytes that were read; 0 once the time is over."""
        buffer, count = bytearray(_CHUNK_BYTES), 0
        for descriptor in _opened([path]):
            while clock.now_ns() < until_ns and (more := _read(descriptor, buffer)):
                count += more
        return count

    began_ns = clock.now_ns()
    with ThreadPoolExecutor(readers) as pool:
        counts = list(pool.map(read, paths))
    taken_s = (clock.now_ns() - began_ns) / 1e9
    if not any(counts):
        raise PageCacheError("there is no byte to read in the files")
    return ReaderRate(
        readers=readers,
        bytes_per_sec=sum(counts) / taken_s,
        files_per_sec=sum(count > 0 for count in counts) / taken_s,
    )


@contextmanager
def left_warm(paths: Sequence[Path]) -> Iterator[None]:
    """Reads the files to their end when the block ends, also by an error: the next measurement finds them cached."""
    try:
        yield
    finally:
        with suppress(PageCacheError):
            read_bytes_per_sec(paths)


def _check_linux() -> None:
    if sys.platform != "linux":
        raise PageCacheError(f"only Linux tells what its page cache holds. Received: {sys.platform}")


def _opened(paths: Sequence[Path]) -> Iterator[int]:
    """Yields a descriptor of each regular file that can be opened, and closes the descriptor afterwards."""
    for path in paths:
        try:
            if not os.path.isfile(path):  # opening a named pipe would block until its other end is opened
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
    """Returns which pages of a file are in the page cache: shape (pages,), bool."""
    size = os.fstat(descriptor).st_size
    pages = np.zeros(math.ceil(size / mmap.PAGESIZE), np.uint8)
    if not size:
        return pages.astype(bool)
    try:
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped:
            content = np.frombuffer(mapped, np.uint8)  # reads no page
            failed = ctypes.CDLL(None, use_errno=True).mincore(
                ctypes.c_void_p(content.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(pages.ctypes.data)
            )
            del content  # while this array refers to the mapping, the mapping cannot be closed
    except OSError as error:
        raise PageCacheError(f"a file cannot be mapped, to see what is cached of it: {error.strerror}") from error
    if failed:
        raise PageCacheError(f"Linux does not tell what is cached: {os.strerror(ctypes.get_errno())}")
    return (pages & 1).astype(bool)  # `mincore` reserves the other bits
