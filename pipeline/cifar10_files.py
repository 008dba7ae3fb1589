"""CIFAR-10 as published: the Python or the binary version, unpacked or in its archive.

Source of the formats: https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.checked_pickles import check_digest, load_arrays
from pipeline.published_data import DatasetError, Splits, checked
from pipeline.sources import shown

# MD5 sums of the Python version's files, as torchvision publishes them (torchvision/datasets/cifar.py).
PICKLE_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
BINARY = tuple(f"{name}.bin" for name in PICKLE_MD5)
# Images a file.
RECORDS = 10_000
_PIXEL_BYTES = 3 * 32 * 32
# The largest published file has 31,035,999 bytes; whatever is larger is another, or a bomb.
_MAX_FILE_BYTES = 40_000_000
# The archives hold eight or nine files of 185 MB together.
_MAX_MEMBERS = 50
_MAX_ARCHIVE_BYTES = 250_000_000


def read_cifar10(path: Path) -> Splits:
    """Reads a folder of CIFAR-10's batches, the folder that holds it, or one of the two published archives.

    Raises:
      DatasetError: if it is none, or a file of it is missing, broken or not the published one.
    """
    where = shown(path)
    files = _in_folder(path) if path.is_dir() else _in_archive(path)
    for names, read in ((tuple(PICKLE_MD5), _pickled), (BINARY, _binary)):
        if set(names) & set(files):
            return _read(where, files, names, read)
    raise DatasetError(f"{where} holds no batch of CIFAR-10: {', '.join(PICKLE_MD5)}, or the same as .bin.")


def _read(where: str, files: Mapping[str, bytes], names: tuple[str, ...], read: Any) -> Splits:
    missing = [name for name in names if name not in files]
    if missing:
        raise DatasetError(f"{where}: {', '.join(missing)} is missing. Unpack the archive again.")
    batches = [read(files[name], f"{where}: {name}", name) for name in names]
    train = tuple(np.concatenate(parts) for parts in zip(*batches[:-1], strict=True))
    return checked("cifar10", where, (train[0], train[1]), batches[-1])


def _in_folder(folder: Path) -> dict[str, bytes]:
    wanted = {*PICKLE_MD5, *BINARY}
    for inside in (folder, folder / "cifar-10-batches-py", folder / "cifar-10-batches-bin"):
        found = {name: inside / name for name in wanted if (inside / name).is_file()}
        if found:
            return {name: _content(path) for name, path in found.items()}
    return {}


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise DatasetError(f"{shown(path)} cannot be read: {error.strerror}.") from error
    if len(content) > _MAX_FILE_BYTES:
        raise DatasetError(f"{shown(path)} has over {_MAX_FILE_BYTES:,} bytes, more than any batch of CIFAR-10.")
    return content


def _in_archive(path: Path) -> dict[str, bytes]:
    """Returns the batches in a tar archive. Nothing is unpacked to disk; what would lie outside of it is refused."""
    where = shown(path)
    wanted = {*PICKLE_MD5, *BINARY}
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for count, member in enumerate(archive, start=1):
                if count > _MAX_MEMBERS or member.offset_data + member.size > _MAX_ARCHIVE_BYTES:
                    raise DatasetError(f"{where} holds more than CIFAR-10's archives do, and is not read.")
                tarfile.data_filter(member, os.fspath(path.parent))  # refuses ../, absolute paths, devices
                name = os.path.basename(member.name)
                if not member.isfile() or name not in wanted:
                    continue
                if name in files or member.size > _MAX_FILE_BYTES:
                    raise DatasetError(f"{where}: {name} is there twice, or larger than any batch of CIFAR-10.")
                content = archive.extractfile(member)
                assert content is not None  # a regular file has content
                files[name] = content.read()
    except tarfile.FilterError as error:
        reason = shown(str(error))
        raise DatasetError(f"{where} holds what does not belong into a data set, and is not read: {reason}.") from error
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DatasetError(f"{where} cannot be read as an archive (.tar.gz): {str(error).rstrip('.')}.") from error
    return files


def _pickled(content: bytes, where: str, name: str) -> tuple[Any, Any]:
    check_digest(content, "md5", PICKLE_MD5[name], where)
    batch = load_arrays(content, where)
    if not isinstance(batch, dict) or not {b"data", b"labels"} <= set(batch):
        raise DatasetError(f"{where}: it must hold `data` and `labels`.")
    return _images(batch[b"data"], where), np.asarray(batch[b"labels"])


def _binary(content: bytes, where: str, _: str) -> tuple[Any, Any]:
    record_bytes = 1 + _PIXEL_BYTES
    if len(content) != RECORDS * record_bytes:
        raise DatasetError(
            f"{where}: it must have {RECORDS:,} records of {record_bytes:,} bytes. Received: {len(content):,} bytes."
        )
    records = np.frombuffer(content, np.uint8).reshape(RECORDS, record_bytes)
    return _images(records[:, 1:], where), records[:, 0]


def _images(rows: Any, where: str) -> Any:
    rows = np.asarray(rows)
    if rows.ndim != 2 or rows.shape[1] != _PIXEL_BYTES:
        raise DatasetError(f"{where}: its rows must have {_PIXEL_BYTES:,} values. Received: shape={rows.shape}.")
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)  # all red, then all green, then all blue
