"""A folder of class folders: one scan finds classes and images, by their headers, and every loader serves that list."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.cache import built_aside, cache_root
from pipeline.errors import SourceError
from pipeline.sources.skip_list import SkipList
from pipeline.sources.source import ImageSource, Progress, Skipped
from pipeline.text import shown

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


def from_folder(
    folder: str | os.PathLike[str],
    *,
    kind: str = "folder",
    name: str | None = None,
    skip_list: SkipList | None = None,
    progress: Progress | None = None,
) -> ImageSource:
    """Scans a folder of class folders.

    Every regular file below a class folder counts: kept if its header is that of a known image format, else skipped
    with a reason. Nothing is decoded, and links to folders are not followed.

    Args:
      folder: holds one folder a class.
      kind: what the results file calls the source.
      name: what the results file calls this one; the folder's own name unless given.
      skip_list: files to leave out, too.
      progress: called with (files done, files in all).
    Raises:
      SourceError: if the folder is missing, empty, holds fewer than two classes or no image.
    """
    root = Path(folder)
    if not root.is_dir():
        problem = "is not a folder" if root.exists() else "does not exist"
        raise SourceError(f"{shown(root)} {problem}. Give a folder that holds one folder of images per class.")
    try:
        classes = class_folders(root)
        listed = [
            (label, os.path.relpath(path, root))
            for label, name_ in enumerate(classes)
            for path in files_below(root / name_)
        ]
    except OSError as error:
        raise SourceError(f"{shown(root)} cannot be read: {error.strerror}.") from error
    statuses, labels, jpeg_sizes, skipped, formats = {}, [], [], [], set()
    entries = skip_list.below(root) if skip_list else {}
    stale = []
    for done, (label, file) in enumerate(listed, start=1):
        found = inspect(root / file)
        entry = entries.pop(file, None)
        if entry is not None and not isinstance(found, Unusable):
            changed = entry.stale(root / file)
            if changed is not None:
                stale.append(Skipped(file=file, reason=changed))
            else:
                found = Unusable(kind="listed", reason=f"skip list: {shown(entry.reason)}")
        if isinstance(found, Unusable):
            skipped.append(Skipped(file=file, reason=found.reason))
        else:
            statuses[file] = found.status.st_size, found.status.st_mtime_ns
            labels.append(label)
            jpeg_sizes.append((found.height, found.width) if found.format == "JPEG" else (0, 0))
            formats.add(found.format)
        if progress:
            progress(done, len(listed))
    stale += [Skipped(file=file, reason="is not there") for file in entries]
    found_labels = set(labels)
    empty = [shown(name_) for label, name_ in enumerate(classes) if label not in found_labels]
    if empty:
        example = f" First skipped: {skipped[0].path} ({skipped[0].reason})." if skipped else ""
        raise SourceError(
            f"{shown(root)}: no image in class folder {', '.join(empty)}. "
            f"Every class needs at least one ({', '.join(FORMATS)}).{example}"
        )
    return ImageSource(
        kind=kind,
        name=shown(name or root.resolve().name),
        class_names=tuple(classes),
        labels=np.array(labels, np.int64),
        root=root.resolve(),
        files=tuple(statuses),
        formats=tuple(sorted(formats)),
        skipped=tuple(skipped),
        stale_skips=tuple(stale),
        jpeg_sizes=np.array(jpeg_sizes, np.int64),
        fingerprint=fingerprint_of(statuses),
    )


def folder_of_links(source: ImageSource, folder: Path | None = None) -> Path:
    """Returns a folder that holds exactly the source's files, class by class, for loaders that only take a folder.

    Links are named by position, so that a loader's alphabetical order is the source's, and end as their content says.
    They lie in the cache unless `folder` says where.
    """
    if folder is None:
        root_digest = hashlib.sha256(os.fsencode(source.root or "")).hexdigest()[:8]
        folder = cache_root() / "links" / f"{source.fingerprint}-{root_digest}"
    if not folder.is_dir():
        for class_name in source.class_names:
            check_folder_name(class_name)
        with built_aside(folder) as partial:
            for class_name in source.class_names:
                (partial / class_name).mkdir()
            for index, (path, label) in enumerate(zip(source.paths, source.labels, strict=True)):
                suffix = FORMATS[image_format(path)] if len(source.formats) > 1 else FORMATS[source.formats[0]]
                (partial / source.class_names[label] / f"{index:08d}{suffix}").symlink_to(path)
    return folder


def image_format(path: str) -> str:
    """Returns the format of an image that the scan kept, by its header."""
    with Image.open(path, formats=tuple(FORMATS)) as image:
        return "JPEG" if image.format == "MPO" else image.format or ""


def copied_to_ram(source: ImageSource, folder: Path) -> ImageSource:
    """Copies the source's files to `folder`, which must be new, and returns the source that reads them there."""
    folder.mkdir(parents=True)
    for path, file in zip(source.paths, source.files, strict=True):
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return replace(source, root=folder)
