"""Writes prepared copies of a source: built aside, and renamed when they are whole."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import tensorflow as tf

from pipeline import clock
from pipeline.cache import built_aside
from pipeline.config import AUTO, PipelineConfig, did_you_mean
from pipeline.prepared import (
    FORMS,
    PreparedError,
    WriteError,
    bytes_of,
    content_digest,
    estimated_bytes,
    read_index,
    write_index,
)
from pipeline.sources import ImageSource, Progress, shown
from pipeline.writers import WRITERS

_BATCH_IMAGES = 32
# What may be taken of the room that is free.
_ROOM_RATIO = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a preparation came to.

    Attributes:
      source_bytes: of the source's images, as they are read in an epoch.
      prepared_bytes: of the copy, its index included.
      seconds: from the first byte that was read to the rename.
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
    image_size: tuple[int, int],
    *,
    decode: str = "full",
    interpolation: str = "bilinear",
    dtype: str = "uint8",
    content: str | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Writes `source` to the folder `out` in a form that is faster to read.

    Pixels are those of a `tf_data` pipeline with the same size, decode and interpolation, rounded to whole levels.

    Args:
      source: what to copy; it is not changed.
      out: a folder that is not there, or empty.
      form: "resized", "records" or "raw".
      image_size: (height, width) in pixels; does not matter to records, which keep the files' bytes.
      decode, interpolation: as in `PipelineConfig`.
      dtype: of raw: "uint8", or "float32" for pixels that are not rounded, in [0, 255].
      content: the source's `content_digest`, if that is known.
      progress: called with (images done, images in all).
    Raises:
      WriteError: if there is no room, or writing fails; nothing is left behind.
      PreparedError: if `out` is there already, or the source cannot be prepared so, or has changed meanwhile.
    """
    begin_ns = clock.now_ns()
    out = Path(out)
    if form not in FORMS:
        raise PreparedError(f"`form` must be one of {', '.join(FORMS)}. Received: {form!r}.{did_you_mean(form, FORMS)}")
    _check_out(source, out)
    if form == "records" and source.root is None:
        raise PreparedError(f"records hold the bytes of files, and {source.kind} images are none.")
    config = PipelineConfig(
        image_size=image_size,
        decode=decode,
        interpolation=interpolation,
        augmentation=None,
        workers=AUTO,
        batch_size=_BATCH_IMAGES,
    )
    try:
        _check_room(estimated_bytes(form, source.images, image_size, bytes_of(source), dtype=dtype), out)
        before = content or content_digest(source)
        with _said(out), built_aside(out) as folder:
            index = WRITERS[form](source, config, folder, dtype, progress or (lambda done, total: None))
            if content_digest(source) != before:
                raise PreparedError(f"{source.name} changed while it was prepared.")
            write_index(folder, replace(index, content=before))
        _check_ours(out, before, form)
        prepared_bytes = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    except OSError as error:
        what = error.filename or out
        raise WriteError(f"{shown(what)}: {error.strerror or error}; nothing was left behind.") from error
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
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise PreparedError(f"{shown(out)} is there already, and nothing is overwritten. Give a new folder.")
    except OSError as error:
        raise PreparedError(f"{shown(out)}: {error.strerror}.") from error
    if source.root is not None and source.root in out.resolve().parents:
        raise PreparedError(f"{shown(out)} would lie among the photos. Give a folder outside of {shown(source.root)}.")


def _check_ours(out: Path, content: str, form: str) -> None:
    """Another's folder may have got the name first: fine if it is the same copy."""
    index, _ = read_index(out)
    if (index.content, index.form) != (content, form):
        raise PreparedError(f"{shown(out)} was made by another program in the meantime. Give a new folder.")


def _check_room(needed_bytes: int, out: Path) -> None:
    there = next(parent for parent in out.resolve().parents if parent.exists())
    free_bytes = shutil.disk_usage(there).free
    if needed_bytes > _ROOM_RATIO * free_bytes:
        raise WriteError(f"not enough room on disk: {needed_bytes / 1e6:.0f} MB needed, {free_bytes / 1e6:.0f} MB free")


@contextlib.contextmanager
def _said(out: Path) -> Iterator[None]:
    """Turns TensorFlow's own errors of files into ours; a disk that is full can be any of several kinds."""
    try:
        yield
    except tf.errors.OpError as error:
        message = shown((error.message.splitlines() or [type(error).__name__])[0])
        raise WriteError(f"{shown(out)}: {message}; nothing was left behind.") from error
