"""The copies that loaders make for themselves, in the user's cache folder, and use again: never stale, never half.

A copy's name is a digest of all that decides what is in it: every image's bytes, names and labels; the settings that
make the pixels; what the scan read in the files' headers; the versions of the pixels, of the layout, and of the
libraries. So what has changed has another name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np

from pipeline.cache import cache_root
from pipeline.config import PipelineConfig
from pipeline.errors import PreparedError
from pipeline.prepared.index import VERSION, content_digest, open_prepared
from pipeline.sources.source import ImageSource

# Raise this number with every change of our code that gives a copy other pixels: decoding, resizing, rounding, the
# quality of JPEG files. All copies and caches that users have are then made again. A change of how a copy is laid out
# raises `index.VERSION` instead. tests/pipeline/prepared/test_pixels.py fails where pixels change and this does not.
PIXELS_VERSION = 1


def prepared_copy(source: ImageSource, config: PipelineConfig) -> tuple[ImageSource, str | None]:
    """Returns the source's copy in the config's `storage`, made now unless it is there, and what making it took.

    Raises:
      PreparedError: if there is no room, or the source cannot be stored so.
    """
    if source.kind == config.storage:
        return source, None  # somebody has prepared it already
    return _copy(source, config, "prepared", config.storage, "uint8")


def cached_copy(source: ImageSource, config: PipelineConfig) -> tuple[ImageSource, str | None]:
    """Returns the source as the stages before any draw leave it, in float32 on disk; see `prepared_copy`."""
    return _copy(source, config, "cached", "raw", "float32")


def has_cached_copy(source: ImageSource, config: PipelineConfig) -> bool:
    """Whether `cached_copy` has made one already."""
    return _folder_of(source, config, "cached", "raw", "float32", content_digest(source)).is_dir()


def _copy(
    source: ImageSource, config: PipelineConfig, where: str, form: str, dtype: str
) -> tuple[ImageSource, str | None]:
    content = content_digest(source)
    folder = _folder_of(source, config, where, form, dtype, content)
    note = None
    copy = _opened(folder)
    if copy is None:
        from pipeline.prepared.write import materialize

        try:
            made = materialize(
                source,
                folder,
                form,
                config.image_size,
                decode=config.decode,
                interpolation=config.interpolation,
                dtype=dtype,
                content=content,
            )
            kind = f"raw, {dtype}" if form == "raw" else form
            note = f"{where} once in {made.seconds:.1f} s: {made.prepared_bytes / 1e6:.1f} MB ({kind})"
            copy = open_prepared(folder)
        except PreparedError:
            copy = _opened(folder)
            if copy is None:
                raise  # not because another builder was first
    return replace(copy, name=source.name), note


def _folder_of(source: ImageSource, config: PipelineConfig, where: str, form: str, dtype: str, content: str) -> Path:
    # Records hold the files' bytes: one copy for all sizes.
    pixels = [config.image_size, config.decode, config.interpolation, dtype] if form != "records" else []
    versions = [VERSION, PIXELS_VERSION, _tensorflow_version(), np.__version__]
    headers = [source.formats, source.jpeg_sizes.tolist()]
    key = hashlib.sha256(json.dumps([content, form, pixels, headers, versions]).encode()).hexdigest()[:24]
    return cache_root() / where / key


def _tensorflow_version() -> str:
    """Returns the version of TensorFlow, without importing it where a distribution says so.

    A copy that is there is opened by processes that never load TensorFlow. The same source comes first whether or not
    it is loaded: TensorFlow and its distribution can write one version in two ways, 2.17.0 and 2.17.0+nv25.2.
    """
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("tensorflow")
    # Other builds have other names, such as tensorflow-cpu.
    names = sorted(set(metadata.packages_distributions().get("tensorflow", ())))
    with contextlib.suppress(metadata.PackageNotFoundError):
        if names:
            return ", ".join(f"{name} {metadata.version(name)}" for name in names)
    import tensorflow as tf

    return str(tf.__version__)


def _opened(folder: Path) -> ImageSource | None:
    """Opens a copy; one that a disk has damaged is moved out of the way, to be removed by the next builder."""
    if not folder.is_dir():
        return None
    with contextlib.suppress(PreparedError):
        return open_prepared(folder)
    # Named as by `cache.built_aside`, of a process that is none: process ids end below 2**22.
    aside = folder.with_name(f"{folder.name}.building-{2**31 - 1}-{secrets.token_hex(4)}")
    try:
        folder.rename(aside)
        open_prepared(aside)
        aside.rename(folder)  # whole: another builder, who saw the damage too, had made it again by now
        return open_prepared(folder)
    except (OSError, PreparedError):  # moved away by another, or damaged indeed
        return None
