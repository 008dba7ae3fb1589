"""Reads the headers of image files: their formats and sizes, or why a file is unusable. Nothing is decoded.

`inspect` asks Pillow, which takes some 70 us a file. The scan of a folder has a reader of its own for ordinary JPEGs,
which takes a seventh of that; a file with anything that this reader does not know is left to `inspect`. What a scan has
read is kept in a memo, so that a later scan reads only files that have changed.
"""

from __future__ import annotations

import errno
import os
import stat
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from unstall.pipeline.errors import SourceError
from unstall.pipeline.memo import Memo
from unstall.text import printable

if TYPE_CHECKING:
    from PIL import Image

# File formats that at least one loader reads, by Pillow's name, with the suffix of a link to such a file.
FORMATS = {"JPEG": ".jpg", "PNG": ".png", "BMP": ".bmp", "GIF": ".gif", "WEBP": ".webp"}
# The marker at the end of a complete image. A JPEG's compressed data cannot hold it (ITU-T T.81, F.1.2.3).
_ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}
# Look for the marker in this many bytes at the end of a file.
_TAIL_BYTES = 16384
# Larger images are refused before decoding: 50 megapixels are 150 MB in memory, per parallel call.
MAX_PIXELS = 50_000_000
# Most JPEGs begin their image within so many bytes.
_HEAD_BYTES = 4096
# The start of frame of images of 8 bits that all decoders here read: baseline, extended, progressive.
_FRAMES = (0xC0, 0xC1, 0xC2)
_SCAN, _TABLES = 0xDA, 0xDB
# Segments that say nothing here: of applications, Huffman tables, restart intervals, comments.
_PASSED = frozenset((*range(0xE0, 0xF0), 0xC4, 0xDD, 0xFE))
# Lengths of one and of two tables of 8 bits, which is what encoders write. Pillow reads others, and checks them.
_TABLES_BYTES = (67, 132)
# The memo of headers in the user's cache.
KIND = "headers"
# Four channels of 16 bits: no format takes more for an image within that limit.
MAX_BYTES = MAX_PIXELS * 8
# Errors that are not the file's fault. If they left the file out, training would run on fewer images without a word.
_PROCESS_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Header(NamedTuple):
    """What an image file's header says, and the file's status. Not a frozen dataclass, which takes longer to make.

    Attributes:
      format: Pillow's name of the format.
      height, width: in pixels.
      status: the result of `os.stat`.
    """

    format: str
    height: int
    width: int
    status: os.stat_result


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """Why a file is left out before anything is decoded.

    Attributes:
      kind: "unreadable", "not a file", "zero bytes", "not an image", "over the limit" or "truncated".
      detail: what is wrong, in words; of what is unreadable, why.
    """

    kind: str
    detail: str

    @property
    def reason(self) -> str:
        """What is told of the file."""
        return f"cannot be read: {self.detail}" if self.kind == "unreadable" else self.detail


def headers_of(root: Path, files: Iterable[str]) -> Iterator[tuple[str, Header | Unusable]]:
    """Yields each file, in their order, with its header or why it is unusable.

    Args:
      root: the folder that `files` are relative to.
      files: in the order of a walk over the folder; see `Memo`.
    Raises:
      SourceError: if this process can open no more files.
    """
    formats = "|".join(FORMATS)
    folder = os.path.join(root, "")
    with Memo(root, KIND, rf"(?:{formats}) \d+ \d+") as memo:
        for file in files:
            path = folder + file
            try:
                status = os.stat(path)
            except OSError:
                yield file, inspect(Path(path))
                continue
            kept = memo.get(file, status)
            if kept is not None:
                format_, height, width = kept.split(" ")
                yield file, Header(format=format_, height=int(height), width=int(width), status=status)
                continue
            header = _of_ordinary_jpeg(path, status) or inspect(Path(path))
            if isinstance(header, Header):
                memo.add(file, header.status, f"{header.format} {header.height} {header.width}")
            yield file, header
        memo.write()


def _of_ordinary_jpeg(path: str, status: os.stat_result) -> Header | None:
    """Returns the header of a whole JPEG file without anything unusual in it; None for any other file."""
    size = status.st_size
    if not stat.S_ISREG(status.st_mode) or not 0 < size <= MAX_BYTES:
        return None
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        head = os.pread(file, _HEAD_BYTES, 0)
        sides = _jpeg_sides(head)
        if sides is None or sides[0] * sides[1] > MAX_PIXELS:
            return None
        end = _ENDS["JPEG"]
        whole = os.pread(file, len(end), size - len(end)) == end or end in os.pread(
            file, _TAIL_BYTES, max(0, size - _TAIL_BYTES)
        )
    except OSError:
        return None
    finally:
        os.close(file)
    return Header(format="JPEG", height=sides[0], width=sides[1], status=status) if whole else None


def _jpeg_sides(head: bytes) -> tuple[int, int] | None:
    """Returns (height, width) of a JPEG whose first scan begins within these bytes; None if anything is unusual.

    Source: ITU-T T.81, annex B.
    """
    if not head.startswith(b"\xff\xd8\xff"):
        return None
    sides = None
    at, last = 2, len(head) - 10
    while at <= last and head[at] == 0xFF:
        marker, length = head[at + 1], head[at + 2] << 8 | head[at + 3]
        if marker in _PASSED:
            pass
        elif marker == _SCAN:
            return sides if length == 6 + 2 * head[at + 4] else None
        elif marker in _FRAMES:
            bits, components = head[at + 4], head[at + 9]
            if bits != 8 or components not in (1, 3, 4) or length != 8 + 3 * components or sides is not None:
                return None
            sides = head[at + 5] << 8 | head[at + 6], head[at + 7] << 8 | head[at + 8]
            if 0 in sides:
                return None
        elif marker == _TABLES:
            # A byte before each table has its bits, 0 for 8, and its number.
            if length not in _TABLES_BYTES or max(head[at + 4 : at + 2 + length : 65]) > 0x0F:
                return None
        else:
            return None
        at += 2 + length
    return None


def inspect(path: Path) -> Header | Unusable:
    """Reads the header of an image file, or says why the file is unusable.

    Opens regular files only: opening a FIFO would wait for a writer.

    Raises:
      SourceError: if this process can open no more files.
    """
    from PIL import Image

    try:
        status = path.stat()
    except OSError as error:
        return Unusable(kind="unreadable", detail=error.strerror or str(error))
    if not stat.S_ISREG(status.st_mode):
        return Unusable(kind="not a file", detail="not a regular file")
    if status.st_size == 0:
        return Unusable(kind="zero bytes", detail="zero bytes")
    if status.st_size > MAX_BYTES:
        size = f"{status.st_size / 1e6:,.0f} MB, over the limit of {MAX_BYTES // 10**6} MB"
        return Unusable(kind="over the limit", detail=size)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the doctor reports what is odd; images that are too large end below
            with Image.open(path, formats=tuple(FORMATS)) as image:
                width, height = image.size
                file_format = _format_of(image)
        complete = file_format not in _ENDS or _holds_end(path, _ENDS[file_format])
    except OSError as error:
        if error.errno in _PROCESS_ERRORS:
            raise SourceError(f"{printable(path)} cannot be opened: {error.strerror}. See `ulimit -a`.") from error
        if error.errno:
            return Unusable(kind="unreadable", detail=error.strerror or str(error))
        return Unusable(kind="not an image", detail="not an image")
    except Image.DecompressionBombError as error:
        return Unusable(kind="over the limit", detail=f"not a readable image: {error}")
    except Exception as error:  # Pillow's readers raise many types at broken bytes
        return Unusable(kind="not an image", detail=f"not a readable image: {printable(str(error))}")
    if width * height > MAX_PIXELS:
        pixels = f"{width}x{height} pixels, over the limit of {MAX_PIXELS // 10**6} megapixels"
        return Unusable(kind="over the limit", detail=pixels)
    if not complete:
        return Unusable(kind="truncated", detail="truncated: the image has no end")
    return Header(format=file_format, height=height, width=width, status=status)


def _format_of(image: Image.Image) -> str:
    """Returns Pillow's name of a format; an MPO file is a JPEG with more images behind it."""
    return "JPEG" if image.format == "MPO" else image.format or ""


def _holds_end(path: Path, end: bytes) -> bool:
    """Whether a file holds its format's end marker; bytes behind it are harmless."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        return end in file.read()


def image_format(path: str) -> str:
    """Returns the format of an image that the scan kept, by its header."""
    from PIL import Image

    with Image.open(path, formats=tuple(FORMATS)) as image:
        return _format_of(image)
