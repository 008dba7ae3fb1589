"""Writes prepared copies of a source, with one function per form. A copy gets its name when it is complete."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from unstall.pipeline import clock
from unstall.pipeline.cache import built_aside
from unstall.pipeline.config import AUTO, PipelineConfig
from unstall.pipeline.draws import epoch_order
from unstall.pipeline.errors import PreparedError, WriteError, first_line
from unstall.pipeline.prepared.index import (
    FORMS,
    Index,
    bytes_of,
    content_digest,
    estimated_bytes,
    read_index,
    write_index,
)
from unstall.pipeline.sources.folder import check_folder_name
from unstall.pipeline.sources.source import ImageSource, Progress
from unstall.pipeline.stages import output, read
from unstall.pipeline.stages.batching import yields_batches
from unstall.text import did_you_mean, printable

# Of JPEG files.
_QUALITY = 95
# TensorFlow's guide asks for shards of 100 MB or more; at least 16 shards, so that 16 can be read at a time. At most
# 256: a loader that reads images by their position has all of them open, and many systems allow 1,024 open files.
_SHARD_BYTES, _MIN_SHARDS, _MOST_SHARDS = 100_000_000, 16, 256
# A record's length and that number's checksum come before its bytes, the checksum of the bytes after them. Source:
# tensorflow's lib/io/record_writer.h.
_BEFORE_RECORD_BYTES, _BEHIND_RECORD_BYTES = 12, 4
# Seed of the order in which images are stored: random, so that neighbours are of all classes, and always the same.
_STORED_SEED = 0


def _images(
    source: ImageSource, config: PipelineConfig, finish: Callable[[Any], Any], order: np.ndarray
) -> Iterator[tuple[np.ndarray, Any]]:
    """Loads the images in `order`; yields (indices of a batch, what `finish` makes of the batch of images)."""
    with tf.device("/CPU:0"):
        dataset = read.load(tf.data.Dataset.from_tensor_slices(order), source, config)
        if not yields_batches(source, config):
            dataset = dataset.batch(config.batch_size)
        dataset = dataset.map(lambda images, labels: finish(images), num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
    done = 0
    try:
        for batch in dataset.as_numpy_iterator():
            yield order[done : done + len(batch)], batch
            done += len(batch)
    except tf.errors.InvalidArgumentError as error:
        raise PreparedError(_undecodable(source, config, order[done:])) from error


def _undecodable(source: ImageSource, config: PipelineConfig, indices: np.ndarray) -> str:
    """Says which image cannot be decoded: loads the images one at a time until one fails."""
    for index in indices:
        try:
            next(iter(read.load(tf.data.Dataset.from_tensors(np.int64(index)), source, config)))
        except tf.errors.InvalidArgumentError as error:
            name = printable(source.files[index]) if source.files else f"image {index}"
            return f"{name} cannot be decoded: {first_line(error)}"
    return _changed(source)  # the image that could not be decoded can be by now


def _changed(source: ImageSource) -> str:
    return f"{source.name} changed while it was prepared."


def write_raw(source: ImageSource, config: PipelineConfig, folder: Path, dtype: str, progress: Progress) -> Index:
    """Writes the pixels of all images to one file in `folder`. Returns the index, still without `content`."""
    stored = epoch_order(source.images, seed=_STORED_SEED, epoch=0)
    path = folder / f"images.{dtype}"
    done = 0
    with path.open("wb") as file:
        for indices, batch in _images(source, config, output.whole_levels if dtype == "uint8" else tf.identity, stored):
            file.write(np.ascontiguousarray(batch).data)
            done += len(indices)
            progress(done, source.images)
        file.flush()
        os.fsync(file.fileno())
    rows = np.empty_like(stored)
    rows[stored] = np.arange(source.images)
    return replace(
        _described(source, "raw"),
        image_size=config.image_size,
        dtype=dtype,
        bytes_of={path.name: path.stat().st_size},
        rows=tuple(rows.tolist()),
    )


def write_resized(source: ImageSource, config: PipelineConfig, folder: Path, dtype: str, progress: Progress) -> Index:
    """Writes a JPEG file per image to class folders in `folder`. Returns the index, still without `content`."""

    def encode(images: Any) -> Any:
        # Without chroma downsampling: at 64 px, 4:2:0 would keep colours at 32 px.
        return tf.map_fn(
            lambda image: tf.io.encode_jpeg(image, quality=_QUALITY, chroma_downsampling=False, optimize_size=True),
            output.whole_levels(images),
            fn_output_signature=tf.string,
        )

    for name in source.class_names:
        check_folder_name(name)
        (folder / name).mkdir()
    bytes_of: dict[str, int] = {}
    for indices, batch in _images(source, config, encode, np.arange(source.images)):
        for index, encoded in zip(indices, batch, strict=True):
            name = f"{source.class_names[source.labels[index]]}/{index:08d}{_stem(source, index)}.jpg"
            (folder / name).write_bytes(encoded)
            bytes_of[name] = len(encoded)
        progress(len(bytes_of), source.images)
    return replace(
        _described(source, "resized"),
        image_size=config.image_size,
        formats=("JPEG",),
        bytes_of=bytes_of,
        names=tuple(bytes_of),
    )


def _stem(source: ImageSource, index: int) -> str:
    """Returns the part of a file's name that is safe on any system, or "". The caller's number keeps names distinct."""
    stem = Path(source.files[index]).stem if source.files else ""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:60]
    return f"-{safe}" if safe else ""


def write_records(source: ImageSource, config: PipelineConfig, folder: Path, dtype: str, progress: Progress) -> Index:
    """Writes the bytes of all files to TFRecord shards in `folder`. Returns the index, still without `content`."""
    stored = epoch_order(source.images, seed=_STORED_SEED, epoch=0)
    shards = min(source.images, max(_MIN_SHARDS, min(_MOST_SHARDS, -(-bytes_of(source) // _SHARD_BYTES))))
    paths = source.paths
    shard, offset, length = (np.zeros(source.images, np.int64) for _ in range(3))
    sizes: dict[str, int] = {}
    done = 0
    for number, indices in enumerate(np.array_split(stored, shards)):
        name = f"images-{number:05d}-of-{shards:05d}.tfrecord"
        at = 0
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for index in indices:
                encoded = Path(paths[index]).read_bytes()
                record = _record(encoded, int(source.labels[index]), source.files[index])
                writer.write(record)
                shard[index], length[index] = number, len(encoded)
                offset[index] = at + _BEFORE_RECORD_BYTES + record.index(encoded)
                at += _BEFORE_RECORD_BYTES + len(record) + _BEHIND_RECORD_BYTES
                done += 1
                if done % config.batch_size == 0 or done == source.images:
                    progress(done, source.images)
        sizes[name] = at
    return replace(
        _described(source, "records"),
        bytes_of=sizes,
        heights=tuple(source.jpeg_sizes[:, 0].tolist()),
        widths=tuple(source.jpeg_sizes[:, 1].tolist()),
        shard=tuple(shard.tolist()),
        offset=tuple(offset.tolist()),
        length=tuple(length.tolist()),
    )


def _record(encoded: bytes, label: int, name: str) -> bytes:
    example = tf.train.Example()
    feature = example.features.feature
    feature["image/encoded"].bytes_list.value.append(encoded)
    feature["image/class/label"].int64_list.value.append(label)
    feature["image/filename"].bytes_list.value.append(os.fsencode(name))
    return example.SerializeToString(deterministic=True)


def _described(source: ImageSource, form: str) -> Index:
    return Index(
        form=form,
        image_size=None,
        content="",
        formats=source.formats,
        class_names=source.class_names,
        bytes_of={},
        labels=tuple(source.labels.tolist()),
        names=tuple(source.files),
    )


WRITERS = {"raw": write_raw, "resized": write_resized, "records": write_records}

_BATCH_IMAGES = 32
# The largest part of the free disk space that a copy may take.
_ROOM_RATIO = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A copy that was written, and what it cost.

    Attributes:
      folder: of the copy.
      form: one of `FORMS`.
      images: number of images.
      source_bytes: bytes of the source's images that an epoch reads.
      prepared_bytes: size of the copy with its index.
      seconds: from reading the first byte to the rename.
    """

    folder: Path
    form: str
    images: int
    source_bytes: int
    prepared_bytes: int
    seconds: float


def materialize(
    source: ImageSource,
    out: str | os.PathLike[str],
    form: str,
    config: PipelineConfig,
    *,
    dtype: str = "uint8",
    content: str | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Writes `source` to the folder `out` in a form that is faster to read.

    Pixels are those of a `tf_data` pipeline with the same size, decode and interpolation, rounded to whole levels.
    Records hold the bytes of the files.

    Args:
      source: the images to copy.
      out: a folder that does not exist, or is empty.
      form: "resized", "records" or "raw".
      config: gives size, decode and interpolation; all else of it is not used.
      dtype: for raw: "uint8", or "float32" in [0, 255] for pixels that are not rounded.
      content: the source's `content_digest`; computed if it is not given.
      progress: called with (images done, images in all).
    Raises:
      WriteError: if there is no room, or writing fails; nothing is left behind.
      PreparedError: if `out` holds files or is the current folder, the source cannot be stored in this form, or it
        changed meanwhile.
    """
    begin_ns = clock.now_ns()
    out = Path(out)
    if out.is_symlink():
        out = out.resolve()  # the copy takes the place of the folder that the link leads to
    if form not in FORMS:
        raise PreparedError(f"`form` must be one of {', '.join(FORMS)}. Received: {form!r}.{did_you_mean(form, FORMS)}")
    _check_out(source, out)
    if form == "records" and source.root is None:
        raise PreparedError(f"records hold the bytes of files, and {source.kind} images are none.")
    config = PipelineConfig(
        image_size=config.image_size,
        decode=config.decode,
        interpolation=config.interpolation,
        augmentation=None,
        workers=AUTO,
        batch_size=_BATCH_IMAGES,
    )
    try:
        _check_room(estimated_bytes(form, source.images, config.image_size, bytes_of(source), dtype=dtype), out)
        before = content or content_digest(source)
        with _tensorflow_errors(out), built_aside(out) as folder:
            index = WRITERS[form](source, config, folder, dtype, progress or (lambda done, total: None))
            if content_digest(source) != before:
                raise PreparedError(_changed(source))
            write_index(folder, replace(index, content=before))
        _check_ours(out, before, form)
        prepared_bytes = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    except OSError as error:
        what = error.filename2 or error.filename or out  # of a rename, where it leads
        raise WriteError(f"{printable(what)}: {error.strerror or error}; nothing was left behind.") from error
    return Prepared(
        folder=out,
        form=form,
        images=source.images,
        source_bytes=bytes_of(source),
        prepared_bytes=prepared_bytes,
        seconds=(clock.now_ns() - begin_ns) / 1e9,
    )


def _check_out(source: ImageSource, out: Path) -> None:
    try:
        if out.exists():
            if not out.is_dir() or any(out.iterdir()):
                raise PreparedError(
                    f"{printable(out)} is there already, and nothing is overwritten. Give a new folder."
                )
            if out.samefile("."):  # the copy would take its place, and the shell stay in a folder that is gone
                raise PreparedError(f"{printable(out)} is the folder that this is run from. Give a new folder.")
    except OSError as error:
        raise PreparedError(f"{printable(out)}: {error.strerror}.") from error
    if source.root is not None and source.root in out.resolve().parents:
        raise PreparedError(
            f"{printable(out)} would lie among the photos. Give a folder outside of {printable(source.root)}."
        )


def _check_ours(out: Path, content: str, form: str) -> None:
    """Checks that `out` holds this copy: another process may have made it first, or something else of that name."""
    index, _ = read_index(out)
    if (index.content, index.form) != (content, form):
        raise PreparedError(f"{printable(out)} was made by another program in the meantime. Give a new folder.")


def _check_room(needed_bytes: int, out: Path) -> None:
    existing = next(parent for parent in out.resolve().parents if parent.exists())
    free_bytes = shutil.disk_usage(existing).free
    if needed_bytes > _ROOM_RATIO * free_bytes:
        raise WriteError(f"not enough room on disk: {needed_bytes / 1e6:.0f} MB needed, {free_bytes / 1e6:.0f} MB free")


@contextlib.contextmanager
def _tensorflow_errors(out: Path) -> Iterator[None]:
    """Turns TensorFlow's file errors into `WriteError`; TensorFlow has several types for a full disk."""
    try:
        yield
    except tf.errors.OpError as error:
        raise WriteError(f"{printable(out)}: {printable(first_line(error))}; nothing was left behind.") from error
