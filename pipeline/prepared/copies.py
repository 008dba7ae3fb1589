"""Prepared copies that loaders make for themselves in the user's cache folder, and use again.

A copy's name is a digest of everything that decides its content: every image's bytes, names and labels; the settings
that make the pixels; what the scan read in the files' headers; the versions of the pixels, of the layout, and of the
libraries. If any of these changes, the name changes, so an outdated copy is never opened.
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

from unstall.pipeline.cache import cache_root, held, let_go
from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.errors import PreparedError
from unstall.pipeline.prepared.index import VERSION, content_digest, open_prepared
from unstall.pipeline.sources.source import ImageSource

# Raise this number with every change of our code that gives a copy other pixels: decoding, resizing, rounding, the
# quality of JPEG files. All copies and caches that users have are then made again. A change of a copy's layout raises
# `index.VERSION` instead. tests/pipeline/prepared/test_pixels.py fails if pixels change and this number does not.
PIXELS_VERSION = 1


def prepared_copy(source: ImageSource, config: PipelineConfig) -> tuple[ImageSource, str | None]:
    """Returns the source's copy in the form `config.storage`; makes the copy unless it exists.

    Returns:
      The copy, and a sentence on what making it took; None if nothing was made.
    Raises:
      PreparedError: if there is no room, or the source cannot be stored in that form.
    """
    if source.kind == config.storage:
        return source, None  # the source is such a copy
    return _copy(source, config, "prepared", config.storage, "uint8")


def cached_copy(source: ImageSource, config: PipelineConfig) -> tuple[ImageSource, str | None]:
    """Returns a copy of the source's decoded, resized images in float32, before any draw; else as `prepared_copy`."""
    return _copy(source, config, "cached", "raw", "float32")


def has_cached_copy(source: ImageSource, config: PipelineConfig) -> bool:
    """Whether the copy that `cached_copy` makes exists already."""
    return _folder_of(source, config, "cached", "raw", "float32", content_digest(source)).is_dir()


def _copy(
    source: ImageSource, config: PipelineConfig, where: str, form: str, dtype: str
) -> tuple[ImageSource, str | None]:
    content = content_digest(source)
    folder = _folder_of(source, config, where, form, dtype, content)
    note = None
    copy = _open_or_none(folder)
    if copy is None:
        from unstall.pipeline.prepared.write import materialize

        try:
            prepared = materialize(source, folder, form, config, dtype=dtype, content=content)
            kind = f"raw, {dtype}" if form == "raw" else form
            note = f"{where} once in {prepared.seconds:.1f} s: {prepared.prepared_bytes / 1e6:.1f} MB ({kind})"
            copy = open_prepared(folder)
        except PreparedError:
            copy = _open_or_none(folder)
            if copy is None:
                raise  # a real failure; else another process made the copy first
    held(folder)
    return replace(copy, name=source.name), note


def _folder_of(source: ImageSource, config: PipelineConfig, where: str, form: str, dtype: str, content: str) -> Path:
    # Records hold the files' bytes, so one copy serves all image sizes.
    pixels = [config.image_size, config.decode, config.interpolation, dtype] if form != "records" else []
    versions = [VERSION, PIXELS_VERSION, _tensorflow_version(), np.__version__]
    headers = [source.formats, source.jpeg_sizes.tolist()]
    key = hashlib.sha256(json.dumps([content, form, pixels, headers, versions]).encode()).hexdigest()[:24]
    return cache_root() / where / key


def _tensorflow_version() -> str:
    """Returns the version of TensorFlow, from its installed distribution if there is one.

    This imports TensorFlow only if no distribution provides it: processes that only open an existing copy need not load
    it. The distribution comes first also where TensorFlow is loaded, since the two can write the same version
    differently, as 2.17.0 and 2.17.0+nv25.2.
    """
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("tensorflow")
    # Some builds have other names, such as tensorflow-cpu.
    names = sorted(set(metadata.packages_distributions().get("tensorflow", ())))
    with contextlib.suppress(metadata.PackageNotFoundError):
        if names:
            return ", ".join(f"{name} {metadata.version(name)}" for name in names)
    import tensorflow as tf

    return str(tf.__version__)


def _open_or_none(folder: Path) -> ImageSource | None:
    """Opens a copy; None if there is none. A damaged copy is renamed, so that the next `built_aside` removes it."""
    if not folder.is_dir():
        return None
    with contextlib.suppress(PreparedError):
        return open_prepared(folder)
    let_go(folder)
    # Named like a folder of `cache.built_aside` whose process has ended: no process has this id, all are below 2**22.
    aside = folder.with_name(f"{folder.name}.building-{2**31 - 1}-{secrets.token_hex(4)}")
    try:
        folder.rename(aside)
        open_prepared(aside)
        aside.rename(folder)  # a good copy: another process had found the damage, too, and had already made it again
        return open_prepared(folder)
    except (OSError, PreparedError):  # another process renamed the copy, or it is damaged
        return None
