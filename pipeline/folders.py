"""What lies in a folder of class folders: classes, files, and which of those are images by their headers."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

# File formats that at least one loader reads, by Pillow's name, with the suffix that links to them get.
FORMATS = {"JPEG": ".jpg", "PNG": ".png", "BMP": ".bmp", "GIF": ".gif", "WEBP": ".webp"}
# What ends a whole image. A JPEG's compressed data cannot hold its end marker (ITU-T T.81, F.1.2.3).
_ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}
_TAIL_BYTES = 16384
# Refused before decoding: 50 megapixels are 150 MB in memory, per parallel call.
MAX_PIXELS = 50_000_000
# No format takes more for an image within that limit: four channels of 16 bits.
MAX_BYTES = MAX_PIXELS * 8
# Not the file's fault: were it left out for that, a training would have fewer images and not know it.
_OF_THE_PROCESS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# What people call the parts of a data set.
_SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "eval", "evaluation", "dev", "holdout"}


class SourceError(ValueError):
    """Images that cannot be used; the message says what, where, the rule and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What an image file's header says: Pillow's name of its format, and pixels; and the file's status."""

    format: str
    height: int
    width: int
    status: os.stat_result


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """Why a file is left out before anything is decoded.

    Attributes:
      kind: "unreadable", "not a file", "zero bytes", "not an image", "over the limit" or "truncated".
      reason: in words.
    """

    kind: str
    reason: str


def shown(path: str | os.PathLike[str]) -> str:
    """Returns a path that is safe to print: what is not printable UTF-8 is escaped."""
    text = os.fsdecode(path).encode("utf-8", "backslashreplace").decode()
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def check_folder_name(class_name: str) -> None:
    """Refuses a class whose name cannot be that of a folder, or would lead out of the one that it is made in.

    Raises:
      SourceError: if so.
    """
    if not class_name or class_name.startswith(".") or "/" in class_name or "\0" in class_name:
        raise SourceError(f"class {shown(class_name)!r} cannot be the name of a folder.")


def class_folders(root: Path) -> list[str]:
    """Returns the names of a folder's class folders, sorted.

    Raises:
      SourceError: if there are fewer than two, or these are the splits of a data set.
      OSError: if a folder cannot be listed.
    """
    folders = subfolders(root)
    rule = "Give a folder that holds one folder of images per class, such as cats/ and dogs/."
    if not folders:
        what = "has no class folders" if any(root.iterdir()) else "is empty"
        raise SourceError(f"{shown(root)} {what}. {rule}")
    if split_folders(root):
        inside = sorted({name for folder in folders for name in subfolders(root / folder)})
        raise SourceError(
            f"{shown(root)} holds splits ({', '.join(map(shown, folders))}), each with the classes "
            f"{', '.join(map(shown, inside))}. Give one of them: {shown(root / folders[-1])}."
        )
    if len(folders) == 1:
        raise SourceError(f"{shown(root)} has one class folder, {shown(folders[0])}; at least 2 are needed. {rule}")
    return folders


def split_folders(root: Path) -> list[str]:
    """Returns the names of a folder's splits, such as train and test, sorted; empty where its folders are classes.

    Folders are splits if all hold the same folders, two at least, or folders at all and bear the names of splits.

    Raises:
      OSError: if a folder cannot be listed.
    """
    folders = subfolders(root)
    inside = [subfolders(root / name) for name in folders]
    alike = len(folders) > 0 and all(len(names) > 1 and names == inside[0] for names in inside)
    named = len(folders) > 1 and all(
        name.lower() in _SPLITS and inner for name, inner in zip(folders, inside, strict=True)
    )
    return folders if alike or named else []


def subfolders(root: Path) -> list[str]:
    """Returns the names of the folders in a folder, sorted; hidden ones do not count."""
    # Not an entry's own `is_dir`: it raises at a link that leads to itself.
    names = sorted(entry.name for entry in os.scandir(root))
    return [name for name in names if not name.startswith(".") and os.path.isdir(root / name)]


def files_below(folder: Path, *, failed: Callable[[OSError], None] | None = None) -> Iterator[str]:
    """Yields all that is no folder below a folder, sorted; links to folders are not followed.

    Args:
      folder: where to look.
      failed: called with what went wrong where a folder below cannot be listed; raised unless given.
    """
    for parent, folders, files in os.walk(folder, onerror=failed or _raise):
        folders.sort()
        for file in sorted(files):
            yield os.path.join(parent, file)


def _raise(error: OSError) -> None:
    raise error


def fingerprint_of(statuses: Mapping[str, tuple[int, int]]) -> str:
    """Returns a digest of files' names, sizes and modification times in nanoseconds, in their order."""
    digest = hashlib.sha256()
    for file, (size_bytes, modified_ns) in statuses.items():
        digest.update(os.fsencode(file) + f"\0{size_bytes}\0{modified_ns}\n".encode())
    return digest.hexdigest()[:16]


def inspect(path: Path) -> Header | Unusable:
    """Reads the header of an image file, or says why there is none to read.

    Opens regular files only: opening a FIFO would wait for a writer.

    Raises:
      SourceError: if this process can open no file, whichever.
    """
    try:
        status = path.stat()
    except OSError as error:
        return Unusable(kind="unreadable", reason=f"cannot be read: {error.strerror}")
    if not stat.S_ISREG(status.st_mode):
        return Unusable(kind="not a file", reason="not a regular file")
    if status.st_size == 0:
        return Unusable(kind="zero bytes", reason="zero bytes")
    if status.st_size > MAX_BYTES:
        size = f"{status.st_size / 1e6:,.0f} MB, over the limit of {MAX_BYTES // 10**6} MB"
        return Unusable(kind="over the limit", reason=size)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is odd about it is the doctor's to say; too large is said below
            with Image.open(path, formats=tuple(FORMATS)) as image:
                width, height = image.size
                file_format = "JPEG" if image.format == "MPO" else image.format or ""  # MPO: more behind a JPEG
        has_end = file_format not in _ENDS or _ends(path, _ENDS[file_format])
    except OSError as error:
        if error.errno in _OF_THE_PROCESS:
            raise SourceError(f"{shown(path)} cannot be opened: {error.strerror}. See `ulimit -a`.") from error
        if error.errno:
            return Unusable(kind="unreadable", reason=f"cannot be read: {error.strerror}")
        return Unusable(kind="not an image", reason="not an image")
    except Image.DecompressionBombError as error:
        return Unusable(kind="over the limit", reason=f"not a readable image: {error}")
    except Exception as error:  # Pillow's readers raise what they come upon in somebody else's bytes
        return Unusable(kind="not an image", reason=f"not a readable image: {shown(str(error))}")
    if width * height > MAX_PIXELS:
        pixels = f"{width}x{height} pixels, over the limit of {MAX_PIXELS // 10**6} megapixels"
        return Unusable(kind="over the limit", reason=pixels)
    if not has_end:
        return Unusable(kind="truncated", reason="truncated: the image has no end")
    return Header(format=file_format, height=height, width=width, status=status)


def _ends(path: Path, end: bytes) -> bool:
    """Whether a file holds its format's end marker; bytes behind it are harmless."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        return end in file.read()
