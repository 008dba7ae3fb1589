"""Digests of files: unchanged files are not read again, and no change goes unseen, whatever its size and times say.

Over 400 lines: the memo's own cases count the reads of the same pictures, through the fixtures made here.
"""

import hashlib
import json
import os
import pathlib
import random

import numpy as np
import pytest
from PIL import Image

from unstall.pipeline import from_folder
from unstall.pipeline import memo as memos
from unstall.pipeline.cache import cache_root
from unstall.pipeline.errors import PreparedError
from unstall.pipeline.memo import MARGIN_NS
from unstall.pipeline.prepared import digests as file_digests
from unstall.pipeline.prepared.index import content_digest
from unstall.pipeline.sources import files_below

FILES = 6


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    """Pictures of equal sizes in bytes."""
    root = tmp_path / "pictures"
    for number in range(FILES):
        path = root / "ab"[number % 2] / f"{number}é.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (20 * number,) * 3).save(path)
    return root


@pytest.fixture
def later(monkeypatch):
    """Puts the file system's clock forward, so that files made just now are old."""
    present = memos._file_time_ns

    def forward(folder):
        begin_ns = present(folder)
        return None if begin_ns is None else begin_ns + 10 * MARGIN_NS

    monkeypatch.setattr(memos, "_file_time_ns", forward)


@pytest.fixture
def reads(monkeypatch):
    """The files that were read, in order."""
    names = []
    read = file_digests._read

    def counted(root, file):
        names.append(file)
        return read(root, file)

    monkeypatch.setattr(file_digests, "_read", counted)
    return names


def digest(folder):
    return content_digest(from_folder(folder))


def blocks(folder):
    """The entries by file, in blocks."""
    _, *lines = memos.memo_path(folder, "digests").read_text().splitlines()
    return [json.loads(line) for line in lines]


def memo(folder):
    return {file: entry for block in blocks(folder) for file, entry in block.items()}


def inverted(path):
    content = path.read_bytes()
    return content[:60] + bytes(255 - byte for byte in content[60:])


def with_times_of(status, path):
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)


# Not read again


def test_unchanged_files_are_read_once(folder, later, reads):
    source = from_folder(folder)
    first = content_digest(source)
    assert sorted(reads) == sorted(source.files)
    reads.clear()
    assert content_digest(source) == first
    assert reads == []


def test_the_second_time_no_file_is_opened(folder, later, monkeypatch):
    source = from_folder(folder)
    first = content_digest(source)

    def refuse(path, *others):
        raise AssertionError(f"{path} was opened")

    monkeypatch.setattr(file_digests, "open", refuse, raising=False)
    assert content_digest(source) == first


@pytest.mark.parametrize("block", [1, 2, 1000])
def test_a_scan_that_finds_all_unchanged_writes_nothing(block, folder, later, monkeypatch):
    monkeypatch.setattr(memos, "_BLOCK_FILES", block)
    first = digest(folder)

    def refuse(dir):
        raise AssertionError(f"a file was made in {dir}")

    monkeypatch.setattr(memos.tempfile, "TemporaryFile", refuse)
    assert digest(folder) == first


def test_a_memo_makes_no_difference_to_the_digest(folder, later, tmp_path, monkeypatch):
    digests = [digest(folder), digest(folder)]
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "other"))
    digests.append(digest(folder))
    assert len(set(digests)) == 1


def test_only_new_and_changed_files_are_read(folder, later, reads):
    first = digest(folder)
    reads.clear()
    (folder / "a/new.bmp").write_bytes(inverted(folder / "a/0é.bmp"))
    (folder / "b/1é.bmp").write_bytes(inverted(folder / "b/1é.bmp"))
    assert digest(folder) != first
    assert sorted(reads) == ["a/new.bmp", "b/1é.bmp"]


def test_parts_of_a_folder_share_its_memo(folder, later, reads):
    source = from_folder(folder)
    digests = {content_digest(source.take(count)) for count in (2, 3, FILES)}
    assert len(digests) == 3
    assert sorted(reads) == sorted(source.files)  # each once
    reads.clear()
    assert {content_digest(source.take(count)) for count in (2, 3, FILES)} == digests
    assert reads == []


def test_files_that_are_gone_leave_the_memo_when_it_is_written(folder, later):
    digest(folder)
    (folder / "a/0é.bmp").rename(folder / "a/renamed.bmp")
    digest(folder)
    assert "a/renamed.bmp" in memo(folder) and "a/0é.bmp" not in memo(folder)


def test_a_memo_names_no_folder_above_the_files_and_is_one_file(folder, later):
    digest(folder)
    [path] = (cache_root() / "digests").iterdir()
    assert path == memos.memo_path(folder, "digests")
    assert str(folder) not in path.read_text() and folder.name not in path.name
    assert sorted(memo(folder)) == sorted(from_folder(folder).files)


def test_a_name_that_is_no_text_has_an_entry(folder, later, reads):
    name = os.fsdecode(b"a/\xff.bmp")
    (folder / name).write_bytes((folder / "a/0é.bmp").read_bytes())
    first = digest(folder)
    reads.clear()
    assert (digest(folder), reads) == (first, [])
    assert name in memo(folder)


@pytest.mark.parametrize("block", [1, 2, 3, 1000])
def test_a_memo_of_several_blocks_has_one_entry_a_file_in_the_order_of_a_walk(block, folder, later, reads, monkeypatch):
    """Files are put in, taken away, and asked for in parts: what is not new is not read again."""
    monkeypatch.setattr(memos, "_BLOCK_FILES", block)
    picture = (folder / "a/0é.bmp").read_bytes()
    digest(folder)
    for name in ("a/0a.bmp", "a/z.bmp", "a/deep/0.bmp", "a-b/0.bmp", "b/9.bmp"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(picture)
        reads.clear()
        digest(folder)
        assert reads == [name]
    (folder / "a/2é.bmp").unlink()
    (folder / "b/7.bmp").write_bytes(picture)
    reads.clear()
    digest(folder)
    files = list(from_folder(folder).files)
    assert reads == ["b/7.bmp"]
    assert list(memo(folder)) == sorted(files, key=memos.walk_order)
    assert max(map(len, blocks(folder))) == min(block, len(files))
    reads.clear()
    content_digest(from_folder(folder).part(np.array([7, 0, 3, 3, 9]), "some"))
    assert reads == []
    assert digest(folder) and reads == []


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_put_in_taken_away_and_asked_for_no_digest_is_wrong_and_no_entry_comes_twice(
    seed, tmp_path, later, reads, monkeypatch
):
    dice = random.Random(seed)
    monkeypatch.setattr(memos, "_BLOCK_FILES", dice.choice([1, 2, 3, 5, 50]))
    monkeypatch.setattr(memos, "_COPIED_BYTES", dice.choice([7, 100, 1 << 20]))
    for _ in range(10):
        for _ in range(dice.randrange(1, 12)):
            folder = tmp_path / "files" / dice.choice(["a", "b", "a/x", "a/x/y", "a-b", "B"])
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{dice.choice('éz01')}{dice.randrange(20)}").write_bytes(dice.randbytes(5))
        paths = [path for path in (tmp_path / "files").rglob("*") if path.is_file()]
        for path in dice.sample(paths, len(paths) // 4):
            path.unlink()
        files = [str(path.relative_to(tmp_path / "files")) for path in paths if path.exists()]
        asked = dice.sample(files, dice.randrange(len(files) + 1))
        contents = [(tmp_path / "files" / file).read_bytes() for file in asked]
        right = [hashlib.blake2b(content, digest_size=16).digest() for content in contents]
        assert file_digests.file_digests(tmp_path / "files", asked) == right
        reads.clear()
        assert file_digests.file_digests(tmp_path / "files", asked) == right
        assert reads == []
        if asked:
            entries = [file for block in blocks(tmp_path / "files") for file in block]
            assert entries == sorted(set(entries), key=memos.walk_order)


def test_files_are_walked_in_the_order_that_the_memo_expects(tmp_path):
    for name in ("b.jpg", "a/2.jpg", "a/10.jpg", "a/1/x.jpg", "a/1/0/y.jpg", "a-b/1.jpg", "A/z.jpg", "a/é.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    files = [os.path.relpath(path, tmp_path) for path in files_below(tmp_path)]
    assert len(files) == 8 and files == sorted(sorted(files), key=memos.walk_order)


# Every change is seen


def test_bytes_edited_in_place_are_seen_by_the_time_of_change(folder, later, reads):
    first = digest(folder)
    path = folder / "a/2é.bmp"
    status = path.stat()
    path.write_bytes(inverted(path))
    with_times_of(status, path)
    assert path.stat().st_ino == status.st_ino
    reads.clear()
    assert digest(folder) != first
    assert reads == ["a/2é.bmp"]


def test_a_file_put_in_the_place_of_another_is_seen(folder, later, reads, tmp_path):
    first = digest(folder)
    path, other = folder / "a/2é.bmp", tmp_path / "other.bmp"
    status = path.stat()
    other.write_bytes(inverted(path))
    with_times_of(status, other)
    other.replace(path)
    reads.clear()
    assert digest(folder) != first
    assert reads == ["a/2é.bmp"]


@pytest.mark.parametrize("field", ["st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns"])
def test_every_part_of_a_status_counts(field):
    class Status:
        st_dev, st_ino, st_size, st_mtime_ns, st_ctime_ns = 1, 2, 3, 4, 5

    before = memos.status_digest(Status)
    setattr(Status, field, 6)
    assert memos.status_digest(Status) != before


def test_a_folder_swapped_for_another_is_seen(folder, later):
    first = digest(folder)
    (folder / "a").rename(folder / "c")
    (folder / "b").rename(folder / "a")
    (folder / "c").rename(folder / "b")
    assert digest(folder) != first


def test_a_link_that_leads_elsewhere_is_seen(folder, later, tmp_path):
    for name, level in (("dark.bmp", 0), ("light.bmp", 255)):
        Image.new("RGB", (8, 8), (level,) * 3).save(tmp_path / name)
    link = folder / "a/link.bmp"
    link.symlink_to(tmp_path / "dark.bmp")
    first = digest(folder)
    link.unlink()
    link.symlink_to(tmp_path / "light.bmp")
    assert digest(folder) != first


def test_a_file_that_is_gone_is_named(folder, later):
    source = from_folder(folder)
    for _ in range(2):
        digests = content_digest(source)
    assert digests
    (folder / "a/2é.bmp").unlink()
    with pytest.raises(PreparedError, match=r"^a/2é\.bmp cannot be read: No such file or directory\.$"):
        content_digest(source)


# What could still change within the clock's tick gets no entry


def test_a_file_that_changed_just_now_is_read_again(folder, reads):
    for path in folder.rglob("*.bmp"):
        os.utime(path, ns=(1, 1))  # its time of change is now
    source = from_folder(folder)
    for _ in range(2):
        content_digest(source)
    assert sorted(reads) == sorted(2 * list(source.files))
    assert not memos.memo_path(folder, "digests").exists()


@pytest.mark.parametrize(("age_ns", "entries"), [(MARGIN_NS, 0), (MARGIN_NS + 1, 1)])
@pytest.mark.parametrize("newer", ["st_mtime_ns", "st_ctime_ns"])
def test_the_newer_of_both_times_must_be_older_than_the_margin(newer, age_ns, entries, folder, monkeypatch):
    status = (folder / "a/0é.bmp").stat()
    changed_ns = max(status.st_mtime_ns, status.st_ctime_ns)
    if newer == "st_mtime_ns":
        changed_ns += 10**12
        os.utime(folder / "a/0é.bmp", ns=(changed_ns, changed_ns))
    monkeypatch.setattr(memos, "_file_time_ns", lambda folder: changed_ns + age_ns)
    memos.memo_path(folder, "digests").parent.mkdir(parents=True)
    file_digests.file_digests(folder, ["a/0é.bmp"])
    assert memos.memo_path(folder, "digests").exists() == bool(entries)


def test_the_time_of_files_is_that_of_a_file_made_now(tmp_path):
    before = memos._file_time_ns(tmp_path / "new")
    (tmp_path / "file").touch()
    after = memos._file_time_ns(tmp_path / "new")
    assert before <= (tmp_path / "file").stat().st_mtime_ns <= after
    assert list((tmp_path / "new").iterdir()) == []


def test_a_file_that_changes_while_it_is_read_gets_no_entry(folder, later, monkeypatch):
    read = file_digests.hashlib.file_digest
    victim = folder / "a/2é.bmp"

    def slow(opened, method):
        hashed = read(opened, method)
        if pathlib.Path(opened.name) == victim:
            victim.write_bytes(inverted(victim))
        return hashed

    with monkeypatch.context() as patch:
        patch.setattr(file_digests.hashlib, "file_digest", slow)
        during = digest(folder)
    assert len(memo(folder)) == FILES - 1 and "a/2é.bmp" not in memo(folder)
    assert digest(folder) != during


# The memo itself

BROKEN = {
    "nothing": lambda text: "",
    "half": lambda text: text[: len(text) // 2],
    "another document": lambda text: "[1]",
    "too deep": lambda text: "[" * 100_000,
    "not text": lambda text: "\udcff\udcfe",
    "not a number": lambda text: text.replace('"version":2', '"version":NaN'),
    "another format": lambda text: text.replace("unstall file digests", "other"),
    "another version": lambda text: text.replace('"version":2', '"version":1'),
    "no files": lambda text: text[: text.index("\n") + 1],
    "files that are no entries": lambda text: text[: text.index("\n") + 1] + "[1]\n",
    "an empty block": lambda text: text.replace("\n", "\n{}\n", 1),
    "an entry that is none": lambda text: text.replace('.bmp":"', '.bmp":"x', 1),
    "an entry of another type": lambda text: text.removesuffix("}\n") + ',"x":1}\n',
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_broken_memo_is_ignored_and_written_anew(problem, folder, later, reads):
    first = digest(folder)
    path = memos.memo_path(folder, "digests")
    text = path.read_text()
    broken = BROKEN[problem](text)
    assert broken != text
    path.write_bytes(broken.encode(errors="surrogateescape"))
    reads.clear()
    assert digest(folder) == first
    assert len(reads) == FILES
    assert path.read_text() == text


def test_of_a_memo_with_a_broken_block_the_blocks_before_it_are_used(folder, later, reads, monkeypatch):
    monkeypatch.setattr(memos, "_BLOCK_FILES", 2)
    first = digest(folder)
    path = memos.memo_path(folder, "digests")
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "{\n", *lines[3:]]))
    reads.clear()
    assert digest(folder) == first
    assert reads == sorted(from_folder(folder).files)[2:]
    assert path.read_text() == whole


def test_a_cache_that_cannot_be_written_stops_nothing(folder, later, reads):
    first = digest(folder)
    for problem in ("a file", "a folder"):
        path = cache_root() / "digests" if problem == "a file" else memos.memo_path(folder, "digests")
        if problem == "a file":
            memos.memo_path(folder, "digests").unlink()
            path.rmdir()
            path.write_text("")
        else:
            path.parent.unlink()
            path.mkdir(parents=True)
        reads.clear()
        assert digest(folder) == first
        assert len(reads) == FILES
    assert [entry.name for entry in memos.memo_path(folder, "digests").parent.iterdir()] == [
        memos.memo_path(folder, "digests").name
    ]


def test_a_full_disk_stops_nothing_and_leaves_nothing(folder, later, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(memos.os, "replace", full)
        first = digest(folder)
    assert list(memos.memo_path(folder, "digests").parent.iterdir()) == []
    assert digest(folder) == first


def test_arrays_have_no_memo(tmp_path):
    from unstall.pipeline import from_arrays

    source = from_arrays(np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1]))
    assert content_digest(source) == content_digest(source)
    assert not cache_root().exists()


def test_a_disk_that_is_full_costs_the_memo_and_nothing_else(folder, later, monkeypatch):
    monkeypatch.setattr(memos.tempfile, "TemporaryFile", lambda dir: open("/dev/full", "wb+"))  # noqa: SIM115
    assert content_digest(from_folder(folder)) and not memos.memo_path(folder, "digests").exists()
