"""The files of a prepared copy, written into a new folder: one function a form."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipeline import reading
from pipeline.augmentation import epoch_order
from pipeline.config import PipelineConfig
from pipeline.folders import check_folder_name, shown
from pipeline.prepared import Index, PreparedError, bytes_of
from pipeline.sources import ImageSource, Progress

# Of JPEG: at 64 px, 4:2:0 would keep colours at 32 px.
_QUALITY = 95
# TensorFlow's guide: shards of 100 MB or more; but enough of them to be read 16 at a time.
_SHARD_BYTES, _MIN_SHARDS = 100_000_000, 16
# A record's length and its checksum, and behind it that of its bytes. Source: tensorflow's lib/io/record_writer.h.
_BEFORE_RECORD_BYTES, _BEHIND_RECORD_BYTES = 12, 4
# Images lie in one fixed random order, so that neighbours are of all classes.
_STORED_SEED = 0


def _images(
    source: ImageSource, config: PipelineConfig, finish: Callable[[Any], Any], order: np.ndarray
) -> Iterator[tuple[np.ndarray, Any]]:
    """Yields (indices, what `finish` makes of their batch of images), in `order`."""
    with tf.device("/CPU:0"):
        dataset = reading.load(tf.data.Dataset.from_tensor_slices(order), source, config)
        if not reading.yields_batches(source, config):
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
    """Says which image cannot be decoded: the first of those that are left, one at a time."""
    for index in indices:
        try:
            next(iter(reading.load(tf.data.Dataset.from_tensors(np.int64(index)), source, config)))
        except tf.errors.InvalidArgumentError as error:
            name = shown(source.files[index]) if source.files else f"image {index}"
            return f"{name} cannot be decoded: {error.message.splitlines()[0]}"
    return f"an image of {source.name} could not be decoded at first, but then it could."


def _whole_levels(images: Any) -> Any:
    return tf.cast(tf.round(tf.clip_by_value(images, 0.0, 255.0)), tf.uint8)


def write_raw(source: ImageSource, config: PipelineConfig, folder: Path, dtype: str, progress: Progress) -> Index:
    stored = epoch_order(source.images, seed=_STORED_SEED, epoch=0)
    path = folder / f"images.{dtype}"
    done = 0
    with path.open("wb") as file:
        for indices, batch in _images(source, config, _whole_levels if dtype == "uint8" else tf.identity, stored):
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
    def encode(images: Any) -> Any:
        return tf.map_fn(
            lambda image: tf.io.encode_jpeg(image, quality=_QUALITY, chroma_downsampling=False, optimize_size=True),
            _whole_levels(images),
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
    """Returns what of a file's name is safe anywhere; the number in front of it keeps names apart and in order."""
    stem = Path(source.files[index]).stem if source.files else ""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:60]
    return f"-{safe}" if safe else ""


def write_records(source: ImageSource, config: PipelineConfig, folder: Path, dtype: str, progress: Progress) -> Index:
    stored = epoch_order(source.images, seed=_STORED_SEED, epoch=0)
    shards = min(source.images, max(_MIN_SHARDS, -(-bytes_of(source) // _SHARD_BYTES)))
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
    one = tf.train.Example()
    feature = one.features.feature
    feature["image/encoded"].bytes_list.value.append(encoded)
    feature["image/class/label"].int64_list.value.append(label)
    feature["image/filename"].bytes_list.value.append(os.fsencode(name))
    return one.SerializeToString(deterministic=True)


def _described(source: ImageSource, form: str) -> Index:
    return Index(
        form=form,
        image_size=None,
        content="",
        formats=source.formats,
        class_names=source.class_names,
        bytes_of={},
        labels=tuple(source.labels.tolist()),
        names=source.files,
    )


WRITERS = {"raw": write_raw, "resized": write_resized, "records": write_records}
