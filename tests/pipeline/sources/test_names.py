"""Names of files are what a tuple of strings would be, in a fraction of its memory."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from unstall.pipeline import from_folder
from unstall.pipeline.sources.names import END, GROUP_NAMES, FileNames

NAMES = ("a/1.jpg", "a/é.jpg", os.fsdecode(b"b/\xff.jpg"), "b/a name\nof two lines.png", "b/日本.jpg")


@pytest.fixture
def names() -> FileNames:
    return FileNames.of(NAMES)


def test_names_are_a_sequence_of_the_strings_that_they_were_made_of(names: FileNames) -> None:
    assert list(names) == list(NAMES)
    assert [names[index] for index in range(-5, 5)] == [NAMES[index] for index in range(-5, 5)]
    assert (len(names), names.index(NAMES[2]), "b/none.jpg" in names) == (5, 2, False)
    for index in (5, -6):
        with pytest.raises(IndexError):
            names[index]


@pytest.mark.parametrize("some", [slice(None), slice(1, 3), slice(None, None, 2), slice(-2, None), slice(4, 0, -1)])
def test_a_slice_holds_names_too(some: slice, names: FileNames) -> None:
    assert isinstance(names[some], FileNames) and names[some] == NAMES[some]


def test_equal_are_the_same_names_in_the_same_order(names: FileNames) -> None:
    assert names == NAMES and names == list(NAMES) and names == FileNames.of(NAMES)
    assert names != NAMES[::-1] and names != NAMES[:-1] and names != (*NAMES[:-1], "b/other.jpg")
    assert FileNames() == () and not FileNames() and FileNames.of("ab") != "ab"


def test_below_a_folder_names_are_paths_of_which_parts_and_groups_can_be_had(names: FileNames) -> None:
    paths = names.below(Path("/photos"))
    assert list(paths) == [f"/photos/{name}" for name in NAMES] == [paths[index] for index in range(5)]
    assert paths.part([4, 1]) == ("/photos/b/日本.jpg", "/photos/a/é.jpg")
    assert names.below("/")[0] == "/a/1.jpg"
    assert list(paths.groups()) == [b"".join(os.fsencode(name) + END for name in NAMES)]


@pytest.mark.parametrize("names", [0, 1, GROUP_NAMES - 1, GROUP_NAMES, GROUP_NAMES + 1, 3 * GROUP_NAMES])
def test_any_number_of_names_stands_in_groups(names: int) -> None:
    given = [f"photo-{index}.jpg" for index in range(names)]
    kept = FileNames.of(given)
    assert list(kept) == given == [kept[index] for index in range(names)]
    sizes = [len(group.split(END)) - 1 for group in kept.groups()]
    assert sum(sizes) == names and all(size == GROUP_NAMES for size in sizes[:-1])


def test_a_name_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="^No name of a file may hold a zero byte. Received: 1 zero bytes.$"):
        FileNames.of(["a.jpg", "b\0.jpg"])


def test_names_go_to_other_processes(names: FileNames) -> None:
    paths = names.below("/photos")
    assert pickle.loads(pickle.dumps(paths)) == paths


@pytest.fixture
def folder_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """Makes folders of so many links to one old photo each."""
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "unstall.pipeline.memo._file_time_ns", lambda folder: folder.mkdir(parents=True, exist_ok=True) or 10**19
    )
    photo = tmp_path / "photo.jpg"
    Image.new("RGB", (8, 8)).save(photo)

    def make(files: int) -> Path:
        for index in range(files):
            link = tmp_path / str(files) / f"class-{index % 2}" / f"photo-{index:08d}.jpg"
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(photo, link)
        return tmp_path / str(files)

    return make


def peak_bytes(folder: Path) -> int:
    tracemalloc.start()
    try:
        from_folder(folder)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("scans", [1, 2])
def test_a_scan_takes_the_memory_of_the_names_and_a_few_numbers(scans: int, folder_of: Callable[[int], Path]) -> None:
    """Names of 27 bytes, with a label and a size of 16 bytes, and for a moment the list of a folder."""
    few, many = 1000, 3000
    peaks = {}
    for files in (few, many):
        folder = folder_of(files)
        for _ in range(scans):
            peaks[files] = peak_bytes(folder)
    assert (peaks[many] - peaks[few]) / (many - few) < 120
