"""The copies that loaders make for themselves, in the user's cache folder, and use again: never stale, never half.

A copy's name is a digest of all that decides what is in it: every image's bytes, names and labels; the settings that
make the pixels; what the scan read in the files' headers; the code that makes the copy, and its libraries. So what has
changed has another name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from pipeline.cache import cache_root
from pipeline.config import PipelineConfig
from pipeline.prepared import VERSION, PreparedError, content_digest, open_prepared
from pipeline.sources import ImageSource

# The modules that make the pixels of a copy, and lay them out.
_CODE = ("augmentation.py", "materialize.py", "prepared.py", "reading.py", "stages.py", "stored.py", "writers.py")
_LIBRARIES = ("tensorflow", "numpy")


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


def code_digest() -> str:
    """Returns a digest of the code that makes copies."""
    digest = hashlib.sha256()
    for name in _CODE:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()


def _copy(
    source: ImageSource, config: PipelineConfig, where: str, form: str, dtype: str
) -> tuple[ImageSource, str | None]:
    content = content_digest(source)
    folder = _folder_of(source, config, where, form, dtype, content)
    note = None
    copy = _opened(folder)
    if copy is None:
        from pipeline.materialize import materialize

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
    versions = [VERSION, code_digest(), *(metadata.version(name) for name in _LIBRARIES)]
    headers = [source.formats, source.jpeg_sizes.tolist()]
    key = hashlib.sha256(json.dumps([content, form, pixels, headers, versions]).encode()).hexdigest()[:24]
    return cache_root() / where / key


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
