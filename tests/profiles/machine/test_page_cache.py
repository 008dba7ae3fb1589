"""The page cache, on real files where the temporary folder lies on a disk."""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from tests.planted import planted
from unstall.profiles.machine import page_cache
from unstall.profiles.machine.page_cache import (
    PageCacheError,
    StorageRates,
    cached_ratio,
    drop,
    left_warm,
    measure_readers,
    measure_storage,
    read_bytes_per_sec,
)

PAGE = mmap.PAGESIZE


def write(path: Path, pages: int) -> Path:
    """Writes a file that is on the disk, and so can be dropped, when this returns."""
    with path.open("wb") as file:
        file.write(os.urandom(pages * PAGE))
        file.flush()
        os.fsync(file.fileno())
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Ten files of eight pages, freshly written, on a filesystem whose pages can be dropped."""
    paths = [write(tmp_path / f"{number}.bin", 8) for number in range(10)]
    descriptor = os.open(paths[0], os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    if cached_ratio(paths[:1]) > 0:
        pytest.skip(f"the filesystem of {tmp_path} keeps its pages: a RAM disk")
    paths[0].read_bytes()
    return paths


def slow_reads(monkeypatch: pytest.MonkeyPatch, fake_clock: FakeClock, ms: Callable[[], float]) -> None:
    """Lets each read that gives bytes take so long on the fake clock."""
    real = os.readv

    def readv(descriptor: int, buffers: list[bytearray]) -> int:
        count = real(descriptor, buffers)
        fake_clock.sleep(ms() / 1e3 if count else 0)
        return count

    monkeypatch.setattr(os, "readv", readv)


@planted
def test_several_readers_read_side_by_side_each_number_others_of_the_files(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read takes 20 ms: two readers of 5 files take 60 ms, one reader 100 ms."""
    real, seen = os.readv, []

    def readv(descriptor: int, buffers: list[bytearray]) -> int:
        count = real(descriptor, buffers)
        if count:
            seen.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            time.sleep(0.02)
        return count

    monkeypatch.setattr(os, "readv", readv)
    one, two = measure_readers(files, (1, 2))
    assert (one.readers, two.readers) == (1, 2)
    assert 1.2 < two.files_per_sec / one.files_per_sec < 5 / 3 * 1.15
    assert one.bytes_per_sec == pytest.approx(8 * PAGE * one.files_per_sec)
    measured, warmed = seen[:5] + seen[10:15], seen[5:10] + seen[15:]
    assert sorted(measured) == sorted(warmed) == sorted(map(str, files))


def test_no_more_readers_are_told_than_there_are_files(files: list[Path]) -> None:
    assert [rate.readers for rate in measure_readers(files, (1, 4, 16))] == [1, 3]


def test_files_that_would_take_long_to_be_read_whole_are_left_out(files: list[Path]) -> None:
    with files[0].open("r+b") as file:
        file.truncate(2 * 10**9)
    with pytest.raises(PageCacheError, match="0 files below 1 GB are too few for 1 measurements"):
        measure_readers(files[:1], (1,))


def test_too_few_files_for_all_readers_are_told(files: list[Path]) -> None:
    with pytest.raises(PageCacheError, match="2 files below 1 GB are too few for 3 measurements"):
        measure_readers(files[:2], (1, 4, 16))


# What is cached


def test_files_just_written_are_cached(files: list[Path]) -> None:
    assert cached_ratio(files) == 1


def test_dropped_files_are_not_cached_until_they_are_read(files: list[Path]) -> None:
    assert drop(files) == 0
    assert cached_ratio(files) == 0
    for path in files[:5]:
        path.read_bytes()
    assert cached_ratio(files) == 0.5


def test_looking_does_not_fill_the_cache(files: list[Path]) -> None:
    drop(files)
    cached_ratio(files)
    assert cached_ratio(files) == 0


def test_the_ratio_is_of_pages_and_not_of_files(files: list[Path], tmp_path: Path) -> None:
    large = write(tmp_path / "large.bin", 24)
    drop([*files, large])
    large.read_bytes()
    assert cached_ratio([files[0], large]) == 24 / 32


def test_a_part_of_a_page_counts_as_a_page(tmp_path: Path) -> None:
    path = tmp_path / "small.bin"
    path.write_bytes(b"x")
    assert cached_ratio([path]) == 1


def test_links_are_followed(files: list[Path], tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(files[0])
    assert drop([link]) == 0
    assert cached_ratio(files[:1]) == 0
    assert cached_ratio(files[1:]) == 1


def test_files_that_are_empty_or_not_there_count_for_nothing(files: list[Path], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    others = [empty, tmp_path / "nowhere", tmp_path, tmp_path / "pipe"]
    os.mkfifo(others[-1])  # to open it would wait for a writer for ever
    assert cached_ratio([*others, *files]) == 1
    assert drop([*others, *files]) == 0
    assert cached_ratio(others) == 0
    assert drop([]) == 0
    assert read_bytes_per_sec([*others, *files]) > 0


# What cannot be dropped


def test_files_that_somebody_has_mapped_are_not_cold(files: list[Path], fake_clock: FakeClock) -> None:
    with files[0].open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert len(mapped[:]) == 8 * PAGE
        with pytest.raises(
            PageCacheError, match=r"^10% of the files stay in the page cache: .*has them mapped"
        ) as said:
            drop(files)
    assert "\n" not in str(said.value)
    assert fake_clock.passed_ns == 10**9  # it had a second
    assert drop(files) == 0


def test_files_on_a_ram_disk_are_not_cold(fake_clock: FakeClock) -> None:
    folder = Path("/dev/shm")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        pytest.skip(f"there is no RAM disk at {folder}")
    path = folder / f"test-page-cache-{os.getpid()}"
    try:
        write(path, 4)
        with pytest.raises(PageCacheError, match=r"^100% of the files stay in the page cache: .*RAM disk \(tmpfs\)"):
            drop([path])
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize(("left", "cold"), [(0.0, True), (0.05, True), (0.051, False), (1.0, False)])
def test_five_per_cent_may_stay(
    monkeypatch: pytest.MonkeyPatch, fake_clock: FakeClock, left: float, cold: bool
) -> None:
    monkeypatch.setattr(page_cache, "cached_ratio", lambda paths: left)
    if cold:
        assert drop([]) == left
    else:
        with pytest.raises(PageCacheError, match=f"{left:.0%} of the files stay"):
            drop([])


def test_pages_that_are_still_being_written_get_time(monkeypatch: pytest.MonkeyPatch, fake_clock: FakeClock) -> None:
    left = iter([1.0, 1.0, 0.4, 0.0])
    monkeypatch.setattr(page_cache, "cached_ratio", lambda paths: next(left))
    assert drop([]) == 0
    assert fake_clock.passed_ns == 3 * 10**8


@pytest.mark.parametrize("function", [cached_ratio, drop, measure_storage])
def test_only_linux_will_do(
    monkeypatch: pytest.MonkeyPatch, files: list[Path], function: Callable[[list[Path]], object]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(PageCacheError, match=r"^only Linux tells what its page cache holds\. Received: darwin$"):
        function(files)


def test_a_file_that_cannot_be_mapped_is_refused(monkeypatch: pytest.MonkeyPatch, files: list[Path]) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(19, "No such device")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(PageCacheError, match="a file cannot be mapped, to see what is cached of it: No such device"):
        cached_ratio(files)


def test_a_system_without_mincore_is_refused(monkeypatch: pytest.MonkeyPatch, files: list[Path]) -> None:
    class Library:
        def mincore(self, *_: object) -> int:
            page_cache.ctypes.set_errno(38)
            return -1

    monkeypatch.setattr(page_cache.ctypes, "CDLL", lambda *_, **__: Library())
    with pytest.raises(PageCacheError, match="Linux does not tell what is cached: Function not implemented"):
        cached_ratio(files)


# How fast files are read


def test_a_rate_is_bytes_over_seconds(
    monkeypatch: pytest.MonkeyPatch, fake_clock: FakeClock, files: list[Path]
) -> None:
    slow_reads(monkeypatch, fake_clock, lambda: 2)
    assert read_bytes_per_sec(files) == pytest.approx(8 * PAGE / 2e-3)


def test_reading_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch, fake_clock: FakeClock, files: list[Path]) -> None:
    slow_reads(monkeypatch, fake_clock, lambda: 2)
    assert read_bytes_per_sec(files, limit_s=0.005) == pytest.approx(8 * PAGE / 2e-3)
    assert fake_clock.passed_ns == 6 * 10**6  # three of ten files


def test_reading_puts_files_into_the_cache(files: list[Path]) -> None:
    drop(files)
    read_bytes_per_sec(files)
    assert cached_ratio(files) == 1


def test_no_bytes_have_no_rate(tmp_path: Path) -> None:
    for paths in ([], [tmp_path / "nowhere"]):
        with pytest.raises(PageCacheError, match="there is no byte to read in the files"):
            read_bytes_per_sec(paths)
        with pytest.raises(PageCacheError, match="there is no byte to read in the files"):
            measure_storage(paths)


def test_a_broken_disk_is_said(monkeypatch: pytest.MonkeyPatch, files: list[Path]) -> None:
    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "readv", fail)
    with pytest.raises(PageCacheError, match="a file cannot be read: Input/output error"):
        read_bytes_per_sec(files)


def test_storage_is_read_cold_then_warm(
    monkeypatch: pytest.MonkeyPatch, fake_clock: FakeClock, files: list[Path], tmp_path: Path
) -> None:
    """A planted disk: 4 ms for each of the ten reads after the pages were dropped, 1 ms for those that follow."""
    (tmp_path / "empty").touch()
    reads = iter([4] * 10 + [1] * 20)
    slow_reads(monkeypatch, fake_clock, lambda: next(reads))
    assert measure_storage([*files, tmp_path / "empty"]) == StorageRates(
        cold_bytes_per_sec=pytest.approx(8 * PAGE / 4e-3),
        warm_bytes_per_sec=pytest.approx(8 * PAGE / 1e-3),
        bytes_per_file=pytest.approx(80 * PAGE / 11),
    )


def test_storage_is_told_from_the_first_files(monkeypatch: pytest.MonkeyPatch, files: list[Path]) -> None:
    dropped: list[list[Path]] = []
    monkeypatch.setattr(page_cache, "_SAMPLE_BYTES", 20 * PAGE)
    monkeypatch.setattr(page_cache, "drop", dropped.append)
    measure_storage(files)
    assert dropped == [files[:3]]  # two hold 16 pages


def test_a_slow_storage_leaves_the_files_warm_all_the_same(
    monkeypatch: pytest.MonkeyPatch, fake_clock: FakeClock, files: list[Path]
) -> None:
    slow_reads(monkeypatch, fake_clock, lambda: 2000)
    assert measure_storage(files).cold_bytes_per_sec == pytest.approx(8 * PAGE / 2)
    assert cached_ratio(files) == 1


def test_files_are_left_warm_after_a_failure(files: list[Path]) -> None:
    drop(files)
    with pytest.raises(ValueError, match="in the midst"), left_warm(files):
        raise ValueError("in the midst")
    assert cached_ratio(files) == 1


def test_nothing_to_warm_hides_no_failure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the reason"), left_warm([tmp_path / "nowhere"]):
        raise ValueError("the reason")
