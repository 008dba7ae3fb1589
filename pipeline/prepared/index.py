"""The index of a prepared copy: what a copy consists of, and how it is opened. `write.materialize` writes copies.

`resized`  JPEG files at one size, in class folders.
`records`  TFRecord shards of the files' own bytes: the same pixels, read in large pieces and without an open per image.
`raw`      the pixels of all images in one file that is mapped into memory.

A copy is a folder with an `index.json`, which names its other files and their sizes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import numpy as np

from unstall.pipeline.errors import PreparedError, SourceError
from unstall.pipeline.prepared.digests import file_digests
from unstall.pipeline.sources.names import FileNames
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.sources.stored import MappedImages, Records
from unstall.text import printable

INDEX = "index.json"
FORMAT = "unstall prepared images"
VERSION = 1
FORMS = ("resized", "records", "raw")
# Of JPEG files at the quality of `write`: 0.9 bytes per pixel were measured at 64 px, 0.5 at 224 px; with a margin.
_JPEG_BYTES_PER_PIXEL, _JPEG_HEADER_BYTES = 1.5, 700
_DISK_BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What `index.json` holds. Tuples of one entry per image are in the order of the source's images.

    Attributes:
      form: one of `FORMS`.
      image_size: (height, width) in pixels; None if images keep their own sizes.
      dtype: dtype of the pixels of `raw`: uint8, or float32 in [0, 255] in a loader's own cache.
      content: digest of the source's images, names and labels.
      formats: Pillow's names of the source's file formats.
      class_names: sorted; a label is an index into them.
      bytes_of: size of each file of the copy, by its path below the folder.
      labels: one per image.
      names: names of the source's files; of the copy's own files for `resized`; empty for arrays.
      heights, widths: `records`: sizes in the headers of JPEG files; 0 for any other file.
      rows: `raw`: each image's row in the file.
      shard, offset, length: `records`: where the encoded bytes of each image are.
    """

    form: str
    image_size: tuple[int, int] | None
    dtype: str = "uint8"
    content: str
    formats: tuple[str, ...] = ()
    class_names: tuple[str, ...]
    bytes_of: dict[str, int]
    labels: tuple[int, ...]
    names: tuple[str, ...] = ()
    heights: tuple[int, ...] = ()
    widths: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    shard: tuple[int, ...] = ()
    offset: tuple[int, ...] = ()
    length: tuple[int, ...] = ()


def write_index(folder: Path, index: Index) -> None:
    """Writes `index.json` and waits until it is on disk. Equal copies have equal indexes."""
    text = json.dumps({"format": FORMAT, "version": VERSION, **asdict(index)}, allow_nan=False)
    with (folder / INDEX).open("w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def is_prepared(folder: Path) -> bool:
    """Whether a folder's `index.json` is that of a prepared copy, or it has some `index.json` and no folders."""
    try:
        with (folder / INDEX).open("rb") as file:
            claims = json.dumps(FORMAT).encode() in file.read(200)
        return claims or not any(entry.is_dir() for entry in os.scandir(folder))
    except OSError:
        return False


def open_prepared(folder: Path) -> ImageSource:
    """Opens a prepared copy; images are in the order of the source that was copied.

    Raises:
      PreparedError: if the index is missing, damaged or of another version, or a file has another size than it says.
    """
    index, digest = read_index(folder)
    labels = np.array(index.labels, np.int64)
    arrays, records = None, None
    jpeg_sizes = np.array([index.heights, index.widths], np.int32).T
    if index.form == "raw":
        assert index.image_size is not None
        [name] = index.bytes_of
        shape = (len(labels), *index.image_size, 3)
        arrays = MappedImages(folder.resolve() / name, shape, index.dtype, np.array(index.rows, np.int64))
    if index.form == "records":
        columns = (np.array(column, np.int64) for column in (index.shard, index.offset, index.length))
        records = Records(tuple(folder.resolve() / name for name in index.bytes_of), *columns)
    if index.form == "resized":
        jpeg_sizes = np.tile(np.array(index.image_size, np.int32), (len(labels), 1))
    return ImageSource(
        kind=index.form,
        name=printable(folder.resolve().name),
        class_names=index.class_names,
        labels=labels,
        root=folder.resolve() if index.form == "resized" else None,
        files=FileNames.of(index.names),
        formats=index.formats,
        fingerprint=digest,
        arrays=arrays,
        records=records,
        jpeg_sizes=jpeg_sizes,
    )


def read_index(folder: Path) -> tuple[Index, str]:
    """Reads a copy's index and checks the sizes of its files. Returns the index and a digest of its text.

    Raises:
      PreparedError: for the reasons of `open_prepared`.
    """

    def refuse(problem: str) -> NoReturn:
        raise PreparedError(
            f"{printable(folder)} cannot be used as a prepared copy: {problem}. "
            "Make it again: unstall materialize --data DIR --out COPY --as raw (or records, resized)."
        )

    try:
        text = (folder / INDEX).read_bytes()
        values = json.loads(text, parse_constant=lambda name: refuse(f"{INDEX} holds {name}"))
    except OSError as error:
        refuse(f"{INDEX} cannot be read: {error.strerror}")
    except PreparedError:
        raise
    except (ValueError, RecursionError):
        refuse(f"{INDEX} is not JSON, or only a part of it")
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        refuse(f"{INDEX} is not of this program")
    if (version := values.pop("version", None)) != VERSION:
        refuse(f"it is of version {version}, and this program reads version {VERSION}")
    index = _index(values)
    if problem := "its entries are not those of an index" if index is None else _inconsistent(index):
        refuse(f"{INDEX} is damaged: {problem}")
    assert index is not None
    for name, size_bytes in index.bytes_of.items():
        try:
            actual_bytes = (folder / name).stat().st_size
        except OSError as error:
            refuse(f"{printable(name)} cannot be read: {error.strerror}")
        if actual_bytes != size_bytes:
            refuse(f"{printable(name)} has {actual_bytes:,} bytes in place of {size_bytes:,}")
    return index, hashlib.sha256(text).hexdigest()[:16]


def _index(values: dict[str, Any]) -> Index | None:
    """Returns the index, or None if an entry is missing, unknown or of the wrong type."""
    if values.keys() != {field.name for field in fields(Index)}:
        return None
    of_type = dict.fromkeys(("form", "dtype", "content"), str)
    items: dict[str, type] = dict.fromkeys(("labels", "heights", "widths", "rows", "shard", "offset", "length"), int)
    items |= dict.fromkeys(("formats", "class_names", "names"), str)
    if any(type(values[name]) is not kind for name, kind in of_type.items()):
        return None
    if not all(type(values[name]) is list and _all(values[name], kind) for name, kind in items.items()):
        return None
    size, sizes = values["image_size"], values["bytes_of"]
    if not (size is None or (type(size) is list and len(size) == 2 and _all(size, int) and min(size) > 0)):
        return None
    if not (type(sizes) is dict and sizes and _all(sizes.values(), int)):
        return None
    entries: dict[str, Any] = {name: tuple(value) if type(value) is list else value for name, value in values.items()}
    return Index(**entries)


def _all(values: Iterable[Any], kind: type) -> bool:
    return all(type(value) is kind for value in values)


def _inconsistent(index: Index) -> str | None:
    """Returns what contradicts itself in an index, or None. Checks that no bytes outside of its files can be read."""
    images = len(index.labels)
    if any("\0" in name for name in (*index.bytes_of, *index.names)):
        return "no file can have such a name"
    pixels = (*index.heights, *index.widths, *(index.image_size or ()))
    if pixels and not 0 <= min(pixels) <= max(pixels) < 2**31:
        return "no image can have such a size"
    if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in index.bytes_of):
        return "a file lies outside of the folder"
    if (
        not images
        or len(index.class_names) < 2
        or not 0 <= min(index.labels) <= max(index.labels) < len(index.class_names)
    ):
        return "labels are not those of its classes"
    if len(index.names) not in (0, images):
        return "there are not as many names as images"
    if len(index.heights) != len(index.widths):
        return "there are not as many heights as widths"
    if index.form == "raw":
        if index.image_size is None or index.dtype not in ("uint8", "float32") or len(index.bytes_of) != 1:
            return "the pixels have no size or type"
        row_bytes = math.prod(index.image_size) * 3 * np.dtype(index.dtype).itemsize
        if sum(index.bytes_of.values()) != images * row_bytes:
            return "the file of pixels is not as large as its images"
        if sorted(index.rows) != list(range(images)):
            return "the rows are not those of its images"
    elif index.form == "records":
        if {len(index.heights), len(index.widths), len(index.shard), len(index.offset), len(index.length)} != {images}:
            return "images have no place in a shard"
        sizes = list(index.bytes_of.values())
        for shard, offset, length in zip(index.shard, index.offset, index.length, strict=True):
            if not (0 <= shard < len(sizes) and offset >= 0 and length > 0 and offset + length <= sizes[shard]):
                return "an image lies outside of its shard"
    elif index.form == "resized":
        if tuple(index.bytes_of) != index.names:
            return "files and names differ"
        if index.image_size is None:
            return "the images have no size"
    else:
        return f"no form {printable(index.form)} is known"
    return None


def bytes_of(source: ImageSource) -> int:
    """Returns how many bytes of a source's images are read in an epoch."""
    if source.arrays is not None:
        return source.arrays.nbytes
    if source.records is not None:
        return int(source.records.length.sum())
    return sum(os.path.getsize(path) for path in source.paths)


def estimated_bytes(
    form: str, images: int, image_size: tuple[int, int], source_bytes: int, *, dtype: str = "uint8"
) -> int:
    """Returns about how many bytes a copy and its index will take; few copies take more.

    Args:
      form: one of `FORMS`.
      images: number of images in the source.
      image_size: (height, width) in pixels.
      source_bytes: size of the source's images, which records hold as they are.
      dtype: dtype of the pixels of `raw`.
    """
    pixels = image_size[0] * image_size[1]
    if form == "raw":
        return images * (pixels * 3 * np.dtype(dtype).itemsize + 100)
    if form == "records":
        return source_bytes + images * 300
    file_bytes = pixels * _JPEG_BYTES_PER_PIXEL + _JPEG_HEADER_BYTES
    return images * int(-(-file_bytes // _DISK_BLOCK_BYTES) * _DISK_BLOCK_BYTES)


def content_digest(source: ImageSource) -> str:
    """Returns a digest of every image's bytes, with names, labels and classes.

    Reads all files except those whose status has not changed since they were last read; see `file_digests`. Sizes and
    modification times alone are not enough: they can stay the same when a file changes, and an outdated copy would be
    used.

    Raises:
      PreparedError: if a file cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    described = [source.images, list(source.class_names), source.labels.tolist(), list(source.files)]
    digest.update(json.dumps(described).encode())
    if source.root is not None:
        try:
            digest.update(b"".join(file_digests(source.root, source.files)))
        except SourceError as error:
            raise PreparedError(str(error)) from error
    else:
        images = source.arrays if source.arrays is not None else source.records
        assert images is not None
        digest.update(repr(getattr(images, "shape", None)).encode())
        for index in range(source.images):
            image = images[index]
            content = image if isinstance(image, bytes) else np.ascontiguousarray(image).tobytes()
            digest.update(len(content).to_bytes(8, "little"))
            digest.update(content)
    return digest.hexdigest()
