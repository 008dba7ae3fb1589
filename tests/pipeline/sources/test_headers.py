"""Headers of image files: the quick reader says what Pillow says, or asks it; unchanged files are not read again."""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path

import pytest
from PIL import Image

from tests import bad_files
from unstall.pipeline import memo
from unstall.pipeline.sources import headers
from unstall.pipeline.sources.folder import from_folder
from unstall.pipeline.sources.headers import Header, Unusable, headers_of, inspect


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "cache"))


def a_jpeg(mode: str = "RGB", size: tuple[int, int] = (40, 30), **options: object) -> bytes:
    encoded = io.BytesIO()
    Image.effect_noise(size, 60).convert(mode).save(encoded, "JPEG", **options)
    return encoded.getvalue()


def quick(path: Path) -> Header | None:
    return headers._of_ordinary_jpeg(str(path), path.stat())


def said(header: Header | Unusable | None) -> object:
    """What is said of a file, without its status, in which reading it changes a time."""
    return (header.format, header.height, header.width) if isinstance(header, Header) else header


@pytest.mark.parametrize(
    "encoded",
    [
        a_jpeg(),
        a_jpeg("L"),
        a_jpeg("CMYK"),
        a_jpeg(progressive=True),
        a_jpeg(quality=100, subsampling=0),
        a_jpeg(optimize=True),
    ],
    ids=["plain", "grey", "four channels", "progressive", "fine", "optimised"],
)
def test_ordinary_jpegs_are_read_without_pillow(encoded: bytes, tmp_path: Path) -> None:
    path = tmp_path / "1.jpg"
    path.write_bytes(encoded)
    header = quick(path)
    assert said(header) == said(inspect(path)) and header is not None
    assert (header.format, header.height, header.width) == ("JPEG", 30, 40)


@pytest.mark.parametrize("trailing", [b"", b"\0" * 100, b"x" * 20_000])
def test_bytes_behind_the_end_are_as_harmless_as_for_pillow(trailing: bytes, tmp_path: Path) -> None:
    path = tmp_path / "1.jpg"
    path.write_bytes(a_jpeg() + trailing)
    assert said(quick(path)) == (said(inspect(path)) if len(trailing) < 16_000 else None)


def test_a_header_that_is_broken_anyhow_is_read_as_pillow_reads_it_or_left_to_pillow(tmp_path: Path) -> None:
    """Bytes of the header changed, cut out or put in at random, and the file cut: no other answer than Pillow's."""
    whole = a_jpeg(progressive=True)
    path = tmp_path / "1.jpg"
    dice = random.Random(0)
    quickly = 0
    for _ in range(3000):
        broken = bytearray(whole)
        at = dice.randrange(min(len(broken), 700))
        kind = dice.randrange(4)
        if kind == 0:
            broken[at] = dice.randrange(256)
        elif kind == 1:
            del broken[at : at + dice.randrange(1, 9)]
        elif kind == 2:
            broken[at:at] = bytes(dice.randrange(256) for _ in range(dice.randrange(1, 9)))
        else:
            del broken[dice.randrange(len(broken)) :]
        path.write_bytes(broken)
        header = quick(path)
        if header is not None:
            quickly += 1
            assert said(header) == said(inspect(path)), (kind, at)
    assert 500 < quickly < 2500


def test_every_kind_of_bad_file_is_what_it_was(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    bad_files.write_all(root)
    files = sorted(os.path.relpath(path, root) for path in root.rglob("*") if not path.is_dir())
    assert len(files) > 20
    headers = [(file, said(header)) for file, header in headers_of(root, files)]
    assert headers == [(file, said(inspect(root / file))) for file in files]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    for number in range(6):
        path = root / "ab"[number % 2] / f"{number}.{'png' if number == 3 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8 + number, 8)).save(path)
    return root


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the file system's clock forward, so that files made just now are old."""
    present = memo._file_time_ns
    monkeypatch.setattr(memo, "_file_time_ns", lambda folder: present(folder) + 10 * memo.MARGIN_NS)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose headers were read, in order."""
    names: list[str] = []
    ordinary = headers._of_ordinary_jpeg
    monkeypatch.setattr(
        headers, "_of_ordinary_jpeg", lambda path, status: names.append(Path(path).name) or ordinary(path, status)
    )
    return names


@pytest.mark.usefixtures("later")
def test_a_second_scan_reads_only_what_has_changed(folder: Path, reads: list[str]) -> None:
    first = from_folder(folder)
    assert len(reads) == 6
    again = from_folder(folder)
    assert len(reads) == 6
    assert (again.files, again.fingerprint, again.formats) == (first.files, first.fingerprint, first.formats)
    assert again.jpeg_sizes.tolist() == first.jpeg_sizes.tolist()
    changed = folder / "a" / "2.jpg"
    times = changed.stat()
    Image.new("RGB", (10, 9)).save(folder / "new.jpg")
    encoded = (folder / "new.jpg").read_bytes()
    (folder / "new.jpg").unlink()
    changed.write_bytes(encoded + b"\0" * (times.st_size - len(encoded)))
    os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (changed.stat().st_size, changed.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    third = from_folder(folder)
    assert reads[6:] == ["2.jpg"]
    assert third.jpeg_sizes.tolist() != first.jpeg_sizes.tolist()


def test_a_file_that_changed_just_now_is_read_again(folder: Path, reads: list[str]) -> None:
    from_folder(folder)
    from_folder(folder)
    assert len(reads) == 12


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("entry", ["JPEG 1 2", "0" * 16 + "EXE 1 2", "0" * 16 + "JPEG 1 -2", 5])
def test_a_memo_with_another_entry_is_not_used(entry: object, folder: Path, reads: list[str]) -> None:
    from_folder(folder)
    path = memo.memo_path(folder, "headers")
    head, block = path.read_text().splitlines()
    path.write_text(f"{head}\n{json.dumps(json.loads(block) | {'a/0.jpg': entry})}\n")
    from_folder(folder)
    assert len(reads) == 12


@pytest.mark.usefixtures("later")
def test_a_time_in_a_far_century_is_a_time(folder: Path) -> None:
    """Nanoseconds since 1970 take more than 63 bits from the year 2262 on; ext4 counts to 2446."""
    before = from_folder(folder)
    os.utime(folder / "a" / "0.jpg", ns=(2**63, 14 * 10**18))
    after = from_folder(folder)
    assert (folder / "a" / "0.jpg").stat().st_mtime_ns > 2**63
    assert after.files == before.files and after.fingerprint != before.fingerprint


def test_a_cache_that_cannot_be_written_does_no_harm(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "file"))
    assert from_folder(folder).images == 6
