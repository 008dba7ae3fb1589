"""Where images come from: one scan yields the list that every loader serves."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pipeline.cache import built_aside, cache_root
from pipeline.folders import (
    FORMATS,
    SourceError,
    Unusable,
    check_folder_name,
    class_folders,
    files_below,
    fingerprint_of,
    inspect,
    shown,
)
from pipeline.skip_list import SkipList
from pipeline.stored import MappedImages, Records

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A file that is left out, and why.

    Attributes:
      file: below the source's root, as the system names it.
      reason: in words.
    """

    file: str
    reason: str

    @property
    def path(self) -> str:
        """Its name as it is safe to show."""
        return shown(self.file)


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
      stale_skips: entries of the skip list that no longer apply, and why.
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
    stale_skips: tuple[Skipped, ...] = field(default=(), repr=False)
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
        stale = [{"path": one.path, "reason": one.reason} for one in self.stale_skips]
        return {
            "kind": self.kind,
            "name": self.name,
            "images": self.images,
            "skipped": len(self.skipped),
            "skipped_files": [{"path": one.path, "reason": one.reason} for one in self.skipped],
            **({"stale_skips": stale} if stale else {}),
            "classes": {shown(name): counts.get(label, 0) for label, name in enumerate(self.class_names)},
            "formats": list(self.formats),
            "fingerprint": self.fingerprint,
        }

    def left_out(self, where: str) -> list[str]:
        """Says which files are left out, and which entries of a skip list are not, a sentence each.

        Args:
          where: all of them are named.
        """
        total = self.images + len(self.skipped)
        said = [
            (f"skipped {len(self.skipped)} of {total} files", self.skipped),
            (f"{len(self.stale_skips)} of the skip list's entries no longer apply", self.stale_skips),
        ]
        more = {what: f" and {len(files) - 1} more" if len(files) > 1 else "" for what, files in said}
        return [f"{what}: {files[0].path} ({files[0].reason}){more[what]}; {where}" for what, files in said if files]

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


def from_tfds(
    name: str, *, split: str = "train", skip_list: SkipList | None = None, progress: Progress | None = None
) -> ImageSource:
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
    return from_folder(folder, kind="tfds", name=name, skip_list=skip_list)


def _export(records: Any, class_names: list[str], folder: Path, progress: Progress | None, total: int) -> None:
    for class_name in class_names:
        check_folder_name(class_name)
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


def open_source(text: str, *, skip_list: SkipList | None = None, progress: Progress | None = None) -> ImageSource:
    """Opens what `--data` names: a folder, a folder that `materialize` wrote, `tfds:NAME` or `generated:N`.

    Args:
      text: the name.
      skip_list: files to leave out, by their paths below the folder.
      progress: called with (files done, files in all).
    Raises:
      SourceError: if it cannot be used.
    """
    kind, _, name = text.partition(":")
    if kind == "generated" and name:
        return _generated(name, skip_list, progress)
    if kind == "tfds" and name:
        return from_tfds(name, skip_list=skip_list, progress=progress)
    from pipeline.prepared import is_prepared, open_prepared

    if is_prepared(Path(text)):
        if skip_list is not None:
            raise SourceError(
                f"{shown(text)} is a prepared copy, from which nothing can be left out. "
                "Make it again from the photos, with the skip list."
            )
        return open_prepared(Path(text))
    return from_folder(text, skip_list=skip_list, progress=progress)


def _generated(count: str, skip_list: SkipList | None, progress: Progress | None) -> ImageSource:
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
    return from_folder(folder, kind="generated", name=f"generated:{count}", skip_list=skip_list)
