"""Where images come from: one scan yields the list that every loader serves.

Over 400 lines: a folder, arrays and TFDS are one subject, and share the scan.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pipeline.cache import built_aside, cache_root
from pipeline.stored import MappedImages, Records

# File formats that at least one loader reads, by Pillow's name, with the suffix that links to them get.
FORMATS = {"JPEG": ".jpg", "PNG": ".png", "BMP": ".bmp", "GIF": ".gif", "WEBP": ".webp"}
# What ends a whole image. A JPEG's compressed data cannot hold its end marker (ITU-T T.81, F.1.2.3).
_ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}
_TAIL_BYTES = 16384
# Refused before decoding: 50 megapixels are 150 MB in memory, per parallel call.
MAX_PIXELS = 50_000_000

Progress = Callable[[int, int], None]


class SourceError(ValueError):
    """Images that cannot be used; the message says what, where, the rule and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A file that is left out, by its path below the source's root, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImageSource:
    """Labelled images that can be read again and again: files below a root, arrays in memory, or files that hold many.

    Attributes:
      kind: "folder", "tfds", "generated", "arrays", or of a prepared copy "resized", "records" or "raw".
      name: what the user asked for.
      class_names: sorted; a label is an index into them.
      labels: (images,) int64.
      root: the folder that `files` are relative to; None where an image is no file of its own.
      files: paths in sorted order, one an image; empty for arrays. Where there is no `root`, they are but names.
      formats: Pillow's name of each format found, sorted.
      skipped: files left out.
      jpeg_sizes: (images, 2) int64, height and width in the header of each JPEG file; 0 for anything else.
      fingerprint: of names, sizes and modification times, or of the arrays' bytes.
      arrays: (images, height, width, 3) uint8 in memory, or mapped into it (float32 in a loader's own cache); or None.
      records: encoded images in TFRecord shards, or None.
    """

    kind: str
    name: str
    class_names: tuple[str, ...]
    labels: np.ndarray = field(repr=False)
    root: Path | None = None
    files: tuple[str, ...] = field(default=(), repr=False)
    formats: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = field(default=(), repr=False)
    fingerprint: str = ""
    arrays: np.ndarray | MappedImages | None = field(default=None, repr=False)
    records: Records | None = field(default=None, repr=False)
    jpeg_sizes: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64), repr=False)

    @property
    def images(self) -> int:
        return len(self.labels)

    @property
    def paths(self) -> list[str]:
        """Absolute paths, in the order of `labels`."""
        return [os.path.join(self.root, file) for file in self.files] if self.root else []

    def to_dict(self) -> dict[str, Any]:
        """Returns what a results file says of the source; no paths but those of skipped files."""
        counts = Counter(self.labels.tolist())
        return {
            "kind": self.kind,
            "name": self.name,
            "images": self.images,
            "skipped": len(self.skipped),
            "skipped_files": [{"path": one.path, "reason": one.reason} for one in self.skipped],
            "classes": {shown(name): counts.get(label, 0) for label, name in enumerate(self.class_names)},
            "formats": list(self.formats),
            "fingerprint": self.fingerprint,
        }

    def take(self, images: int) -> ImageSource:
        """Returns a source of at most `images`, spread evenly over the list and so over the classes."""
        if images >= self.images:
            return self
        return self.part(np.linspace(0, self.images - 1, images).round().astype(int), str(images))

    def part(self, chosen: np.ndarray, name: str) -> ImageSource:
        """Returns a source of some of the images.

        Args:
          chosen: (images,) indices, in the order in which they are to be listed.
          name: added to the fingerprint: tells this part from any other of the same source.
        """
        arrays = self.arrays.part(chosen) if isinstance(self.arrays, MappedImages) else self.arrays
        return replace(
            self,
            labels=self.labels[chosen],
            files=tuple(self.files[index] for index in chosen) if self.files else (),
            arrays=arrays[chosen] if isinstance(arrays, np.ndarray) else arrays,
            records=self.records.part(chosen) if self.records is not None else None,
            jpeg_sizes=self.jpeg_sizes[chosen] if len(self.jpeg_sizes) else self.jpeg_sizes,
            fingerprint=f"{self.fingerprint}-{name}",
        )


def from_folder(
    folder: str | os.PathLike[str],
    *,
    kind: str = "folder",
    name: str | None = None,
    progress: Progress | None = None,
) -> ImageSource:
    """Scans a folder of class folders.

    Every regular file below a class folder counts: kept if its header is that of a known image format, else skipped
    with a reason. Nothing is decoded, and links to folders are not followed.

    Args:
      folder: holds one folder a class.
      kind: what the results file calls the source.
      name: what the results file calls this one; the folder's own name unless given.
      progress: called with (files done, files in all).
    Raises:
      SourceError: if the folder is missing, empty, holds fewer than two classes or no image.
    """
    root = Path(folder)
    if not root.is_dir():
        problem = "is not a folder" if root.exists() else "does not exist"
        raise SourceError(f"{shown(root)} {problem}. Give a folder that holds one folder of images per class.")
    try:
        classes = _class_folders(root)
        listed = [
            (label, os.path.relpath(path, root))
            for label, name_ in enumerate(classes)
            for path in _files_below(root / name_)
        ]
    except OSError as error:
        raise SourceError(f"{shown(root)} cannot be read: {error.strerror}.") from error
    files, labels, jpeg_sizes, skipped, formats = [], [], [], [], set()
    digest = hashlib.sha256()
    for done, (label, file) in enumerate(listed, start=1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # such a file is refused, not decoded
            found = _inspect(root / file)
        if isinstance(found, str):
            skipped.append(Skipped(path=shown(file), reason=found))
        else:
            file_format, size, status = found
            digest.update(os.fsencode(file) + f"\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
            files.append(file)
            labels.append(label)
            jpeg_sizes.append(size if file_format == "JPEG" else (0, 0))
            formats.add(file_format)
        if progress:
            progress(done, len(listed))
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
        files=tuple(files),
        formats=tuple(sorted(formats)),
        skipped=tuple(skipped),
        jpeg_sizes=np.array(jpeg_sizes, np.int64),
        fingerprint=digest.hexdigest()[:16],
    )


def _class_folders(root: Path) -> list[str]:
    entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    folders = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    rule = "Give a folder that holds one folder of images per class, such as cats/ and dogs/."
    if not folders:
        what = "is empty" if not entries else "has no class folders"
        raise SourceError(f"{shown(root)} {what}. {rule}")
    inside = [{entry.name for entry in os.scandir(root / name) if entry.is_dir()} for name in folders]
    if all(len(names) > 1 for names in inside) and all(names == inside[0] for names in inside):
        raise SourceError(
            f"{shown(root)} holds splits ({', '.join(map(shown, folders))}), each with the classes "
            f"{', '.join(map(shown, sorted(inside[0])))}. Give one of them: {shown(root / folders[-1])}."
        )
    if len(folders) == 1:
        raise SourceError(f"{shown(root)} has one class folder, {shown(folders[0])}; at least 2 are needed. {rule}")
    return folders


def _files_below(folder: Path) -> Iterator[str]:
    for parent, folders, files in os.walk(folder, onerror=_raise):
        folders.sort()
        for file in sorted(files):
            yield os.path.join(parent, file)


def _raise(error: OSError) -> None:
    raise error


def _inspect(path: Path) -> tuple[str, tuple[int, int], os.stat_result] | str:
    """Returns the format, (height, width) and status of an image file, or why it is skipped.

    Opens regular files only.
    """
    try:
        status = path.stat()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not os.path.isfile(path):
        return "not a regular file"
    if status.st_size == 0:
        return "zero bytes"
    try:
        with Image.open(path, formats=tuple(FORMATS)) as image:
            width, height = image.size
            file_format = "JPEG" if image.format == "MPO" else image.format or ""  # MPO: a JPEG with more behind it
    except OSError as error:
        return f"cannot be read: {error.strerror}" if error.errno else "not an image"
    except (SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return f"not a readable image: {error}"
    if file_format in _ENDS and not _ends(path, _ENDS[file_format]):
        return "truncated: the image has no end"
    if width * height > MAX_PIXELS:
        return f"{width}x{height} pixels, over the limit of {MAX_PIXELS // 10**6} megapixels"
    return file_format, (height, width), status


def _ends(path: Path, end: bytes) -> bool:
    """Whether a file holds its format's end marker; bytes behind it are harmless."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        return end in file.read()


def shown(path: str | os.PathLike[str]) -> str:
    """Returns a path that is safe to print: what is not printable UTF-8 is escaped."""
    text = os.fsdecode(path).encode("utf-8", "backslashreplace").decode()
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def from_arrays(images: np.ndarray, labels: np.ndarray, *, class_names: tuple[str, ...] | None = None) -> ImageSource:
    """Returns a source of arrays in memory.

    Args:
      images: (images, height, width, 3) uint8.
      labels: (images,) or (images, 1) integers, 0 to classes - 1.
      class_names: one a class; "0", "1", ... unless given.
    Raises:
      SourceError: if the arrays have other shapes or types, or do not match.
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8 or not len(images):
        raise SourceError(
            "`images` must be a uint8 array of shape (images, height, width, 3). "
            f"Received: shape={images.shape}, dtype={images.dtype}."
        )
    labels = labels.reshape(-1)
    if len(labels) != len(images) or not np.issubdtype(labels.dtype, np.integer):
        raise SourceError(
            f"`labels` must be one integer per image ({len(images)}). Received: {len(labels)} of {labels.dtype}."
        )
    names = class_names or tuple(str(label) for label in range(int(labels.max()) + 1))
    if len(names) < 2 or labels.min() < 0 or labels.max() >= len(names):
        raise SourceError(
            f"`labels` must lie in 0 to classes - 1, of at least 2 classes. "
            f"Received: {len(names)} classes, labels {labels.min()} to {labels.max()}."
        )
    content = images.tobytes() + labels.astype(np.int64).tobytes() + repr((images.shape, names)).encode()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return ImageSource(
        kind="arrays",
        name="arrays",
        class_names=tuple(names),
        labels=labels.astype(np.int64),
        fingerprint=digest,
        arrays=images,
    )


def from_tfds(name: str, *, split: str = "train", progress: Progress | None = None) -> ImageSource:
    """Exports the encoded images of a prepared TFDS data set into the cache, once, and scans them.

    Nothing is downloaded: the data set must be there (`tfds build NAME`), in TFDS' own folder or `TFDS_DATA_DIR`.

    Raises:
      SourceError: if the data set is not prepared, or has no `image` and `label`.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow_datasets as tfds  # 3 s: only where asked for

    try:
        builder = tfds.builder(name, try_gcs=False)
        info = builder.info
        prepared = split in info.splits
    except Exception as error:  # TFDS raises its own many kinds; all mean the same to the user
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SourceError(f"tfds:{name} is not a data set that TFDS can find here: {reason.rstrip('.')}.") from error
    if not prepared:
        raise SourceError(
            f"tfds:{name} has no split {split!r} on this machine, and nothing is downloaded unasked. "
            f"Prepare it with `tfds build {name}`, or set TFDS_DATA_DIR to where it lies."
        )
    features = info.features
    if not hasattr(features, "keys") or not {"image", "label"} <= set(features.keys()):
        raise SourceError(f"tfds:{name} has no `image` and `label`; only image classification data sets can be read.")
    total = info.splits[split].num_examples
    folder = cache_root() / "tfds" / f"{name.replace('/', '-')}-{builder.version}-{split}"
    records = builder.as_dataset(split=split, decoders={"image": tfds.decode.SkipDecoding()}, shuffle_files=False)
    try:
        if not folder.is_dir():
            _export(records, features["label"].names, folder, progress, total)
    except OSError as error:
        where = shown(cache_root())
        raise SourceError(f"tfds:{name} cannot be exported to {where}: {error.strerror or error}.") from error
    return from_folder(folder, kind="tfds", name=name)


def _export(records: Any, class_names: list[str], folder: Path, progress: Progress | None, total: int) -> None:
    with built_aside(folder) as partial:
        for class_name in class_names:
            (partial / class_name).mkdir(parents=True)
        for index, record in enumerate(records.as_numpy_iterator()):
            target = partial / class_names[int(record["label"])] / f"{index:07d}"
            target.write_bytes(record["image"])
            if progress:
                progress(index + 1, total)


def folder_of_links(source: ImageSource, folder: Path | None = None) -> Path:
    """Returns a folder that holds exactly the source's files, class by class, for loaders that only take a folder.

    Links are named by position, so that a loader's alphabetical order is the source's, and end as their content says.
    They lie in the cache unless `folder` says where.
    """
    if folder is None:
        root_digest = hashlib.sha256(os.fsencode(source.root or "")).hexdigest()[:8]
        folder = cache_root() / "links" / f"{source.fingerprint}-{root_digest}"
    if not folder.is_dir():
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


def open_source(text: str, *, progress: Progress | None = None) -> ImageSource:
    """Opens what `--data` names: a folder, a folder that `materialize` wrote, `tfds:NAME` or `generated:N`.

    Raises:
      SourceError: if it cannot be used.
    """
    kind, _, name = text.partition(":")
    if kind == "generated" and name:
        return _generated(name, progress)
    if kind == "tfds" and name:
        return from_tfds(name, progress=progress)
    from pipeline.prepared import is_prepared, open_prepared

    if is_prepared(Path(text)):
        return open_prepared(Path(text))
    return from_folder(text, progress=progress)


def _generated(count: str, progress: Progress | None) -> ImageSource:
    from pipeline.generated import generated_folder

    if not count.isdecimal():
        raise SourceError(f"generated:N needs a number of photos, such as generated:2000. Received: generated:{count}.")
    try:
        folder = generated_folder(int(count), cache_root(), progress=progress)
    except ValueError as error:
        raise SourceError(str(error)) from error
    except OSError as error:
        where = shown(cache_root())
        raise SourceError(f"the photos cannot be written to {where}: {error.strerror or error}.") from error
    return from_folder(folder, kind="generated", name=f"generated:{count}")
