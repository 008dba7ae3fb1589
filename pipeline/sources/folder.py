"""A source that is a folder of class folders: one scan, by the files' headers, lists the images for every loader."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from unstall.pipeline.cache import built_aside, cache_root, held
from unstall.pipeline.errors import SourceError
from unstall.pipeline.sources.headers import FORMATS, Unusable, headers_of, image_format
from unstall.pipeline.sources.names import ENCODING, FileNames
from unstall.pipeline.sources.skip_list import SkipList
from unstall.pipeline.sources.source import ImageSource, Progress, Skipped
from unstall.text import printable

# Usual names of the parts of a data set, with or without "_set" or "_data" behind them.
_SPLIT = re.compile(
    r"(train|training|test|testing|val|valid|validation|eval|evaluation|dev|holdout)(?:[_-]?(?:set|data|ds|images))?",
    re.IGNORECASE,
)


def check_folder_name(class_name: str) -> None:
    """Checks that a class's name can be the name of a folder, and does not lead out of the folder above it.

    Raises:
      SourceError: if not.
    """
    if not class_name or class_name.startswith(".") or "/" in class_name or "\0" in class_name:
        raise SourceError(f"class {printable(class_name)!r} cannot be the name of a folder.")


def class_folders(root: Path) -> list[str]:
    """Returns the names of a folder's class folders, sorted.

    Raises:
      SourceError: if there are fewer than two, or they are the splits of a data set.
      OSError: if a folder cannot be listed.
    """
    folders = subfolders(root)
    rule = "Give a folder that holds one folder of images per class, such as cats/ and dogs/."
    if not folders:
        what = "has no class folders" if any(root.iterdir()) else "is empty"
        raise SourceError(f"{printable(root)} {what}. {rule}")
    if splits := split_folders(root):
        inside = sorted({name for split in splits for name in subfolders(root / split)})
        to_train = next((split for split in splits if split.lower().startswith("train")), splits[-1])
        raise SourceError(
            f"{printable(root)} holds splits ({', '.join(map(printable, splits))}), each with the classes "
            f"{', '.join(map(printable, inside))}. Give one of them: {printable(root / to_train)}."
        )
    if len(folders) == 1:
        raise SourceError(
            f"{printable(root)} has one class folder, {printable(folders[0])}; at least 2 are needed. {rule}"
        )
    return folders


def split_folders(root: Path) -> list[str]:
    """Returns the names of a folder's splits, such as train and test, sorted; empty if its folders are classes.

    Folders are splits if all hold the same two or more folders, or if two or more have usual names of splits and hold
    folders; others beside those, such as a folder of pictures to predict, are none.

    Raises:
      OSError: if a folder cannot be listed.
    """
    folders = subfolders(root)
    # A search for folders among many images takes time: the other classes are searched only if the first has folders.
    first = subfolders(root / folders[0]) if folders else []
    if len(first) > 1 and all(subfolders(root / name) == first for name in folders[1:]):
        return folders
    named = [name for name in folders if _SPLIT.fullmatch(name) and subfolders(root / name)]
    return named if len(named) > 1 else []


def subfolders(root: Path) -> list[str]:
    """Returns the names of the folders in a folder, sorted, without hidden ones."""
    return sorted(entry.name for entry in os.scandir(root) if not entry.name.startswith(".") and _is_folder(entry))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder; asks the file system for links only."""
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def files_below(folder: Path, *, failed: Callable[[OSError], None] | None = None) -> Iterator[str]:
    """Yields the paths of all files below a folder, sorted; links to folders are not followed.

    Args:
      folder: where to look.
      failed: called with the error if a folder cannot be listed; by default the error is raised.
    """
    for parent, folders, files in os.walk(folder, onerror=failed or _raise):
        folders.sort()
        for file in sorted(files):
            yield f"{parent}{os.sep}{file}"


def _raise(error: OSError) -> None:
    raise error


class Fingerprint:
    """A digest of files' names, sizes in bytes and modification times in nanoseconds, in the order of the calls."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, file: str, size_bytes: int, modified_ns: int) -> None:
        self._digest.update(file.encode(*ENCODING) + b"\0%d\0%d\n" % (size_bytes, modified_ns))

    def __str__(self) -> str:
        return self._digest.hexdigest()[:16]


def from_folder(
    folder: str | os.PathLike[str],
    *,
    kind: str = "folder",
    name: str | None = None,
    skip_list: SkipList | None = None,
    progress: Progress | None = None,
) -> ImageSource:
    """Scans a folder of class folders.

    Every file below a class folder is listed: kept if its header is that of a known image format, else skipped with a
    reason. Nothing is decoded, and links to folders are not followed.

    Args:
      folder: holds one folder per class.
      kind: the source's kind in a results file.
      name: the source's name there; by default the folder's name.
      skip_list: further files to leave out.
      progress: called with (files done, files in all).
    Raises:
      SourceError: if the folder is missing or empty, holds fewer than two classes, or a class without images.
    """
    root = Path(folder)
    if not root.is_dir():
        problem = "is not a folder" if root.exists() else "does not exist"
        raise SourceError(f"{printable(root)} {problem}. Give a folder that holds one folder of images per class.")
    try:
        classes = class_folders(root)
        listed = FileNames.of(file for class_name in classes for file in _files_of(root, class_name))
    except OSError as error:
        raise SourceError(f"{printable(root)} cannot be read: {error.strerror}.") from error
    label_of = {class_name: label for label, class_name in enumerate(classes)}
    # Arrays of numbers, so that a list of a million files takes little memory.
    left_out, labels, jpeg_sizes = array("q"), array("q"), array("i")
    skipped, formats, fingerprint = [], set(), Fingerprint()
    entries = skip_list.below(root) if skip_list else {}
    stale = []
    for index, (file, header) in enumerate(headers_of(root, listed)):
        entry = entries.pop(file, None) if entries else None
        if entry is not None and not isinstance(header, Unusable):
            stale_reason = entry.stale(root / file)
            if stale_reason is not None:
                stale.append(Skipped(file=file, reason=stale_reason))
            else:
                header = Unusable(kind="listed", detail=f"skip list: {printable(entry.reason)}")
        if isinstance(header, Unusable):
            left_out.append(index)
            skipped.append(Skipped(file=file, reason=header.reason))
        else:
            labels.append(label_of[file[: file.index("/")]])
            fingerprint.add(file, header.status.st_size, header.status.st_mtime_ns)
            jpeg_sizes.extend((header.height, header.width) if header.format == "JPEG" else (0, 0))
            formats.add(header.format)
        if progress:
            progress(index + 1, len(listed))
    stale += [Skipped(file=file, reason="is not there") for file in entries]
    labels_with_images = set(labels)
    empty = [printable(class_name) for label, class_name in enumerate(classes) if label not in labels_with_images]
    if empty:
        example = f" First skipped: {skipped[0].path} ({skipped[0].reason})." if skipped else ""
        raise SourceError(
            f"{printable(root)}: no image in class folder {', '.join(empty)}. "
            f"Every class needs at least one ({', '.join(FORMATS)}).{example}"
        )
    return ImageSource(
        kind=kind,
        name=printable(name or root.resolve().name),
        class_names=tuple(classes),
        labels=np.frombuffer(labels, np.int64),
        root=root.resolve(),
        files=listed.part(np.delete(np.arange(len(listed)), left_out)) if skipped else listed,
        formats=tuple(sorted(formats)),
        skipped=tuple(skipped),
        stale_skips=tuple(stale),
        jpeg_sizes=np.frombuffer(jpeg_sizes, np.int32).reshape(-1, 2),
        fingerprint=str(fingerprint),
    )


def _files_of(root: Path, class_name: str) -> Iterator[str]:
    """Yields the paths of a class's files below the root, in the order of `files_below`."""
    folder = root / class_name
    above = len(str(folder)) - len(class_name)
    for path in files_below(folder):
        yield path[above:]


def folder_of_links(source: ImageSource, folder: Path | None = None) -> Path:
    """Returns a folder with links to exactly the source's files, by class, for loaders that only take a folder.

    A link's name is its position, so that a loader's alphabetical order is the source's order, and the suffix of the
    file's real format.

    Args:
      source: files.
      folder: where to make the links; by default in the cache. If it exists, it is returned as it is.
    Raises:
      SourceError: if a class's name cannot be the name of a folder.
    """
    in_cache = folder is None
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
    return held(folder) if in_cache else folder


def copied_to_ram(source: ImageSource, folder: Path) -> ImageSource:
    """Copies the source's files to `folder`, which must be new, and returns the source that reads them there."""
    folder.mkdir(parents=True)
    for path, file in zip(source.paths, source.files, strict=True):
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return replace(source, root=folder)
