"""Published data sets in files: NumPy's `.npz`, MNIST's idx files, Keras' file of reviews, CIFAR-10.

CIFAR-10 comes as its Python or its binary version, unpacked or in its archive. Source of the formats:
https://www.cs.toronto.edu/~kriz/cifar.html. Unpickling calls whatever a file names: a pickle is read only when its
checksum is the published one, and may rebuild NumPy arrays and nothing else.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pipeline.sources.published import FORMS, WORDS, DatasetError, Splits, checked
from pipeline.text import shown

# What rebuilding an array takes, by the names that NumPy 1 and NumPy 2 pickle them under.
_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)  # NumPy 2 moved it


def check_digest(content: bytes, algorithm: str, expected: str, where: str) -> None:
    """Refuses a file that is not the published one.

    Raises:
      DatasetError: if the checksum differs.
    """
    # Not for security as FIPS has it: CIFAR-10's files have published MD5 sums only, and the unpickler trusts none.
    found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise DatasetError(
            f"{where}: it is not the published file, and is not read. {algorithm.upper()} is {found}, "
            f"published {expected}. Get it again."
        )


def load_arrays(content: bytes, where: str) -> Any:
    """Unpickles dicts, lists, numbers, bytes and arrays, and nothing that could run code.

    Raises:
      DatasetError: if the pickle holds anything else, or is broken.
    """
    try:
        return _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a broken pickle raises of all kinds
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DatasetError(f"{where}: it is no pickle of plain arrays, and is not read: {reason}.") from error


KEYS = ("x_train", "y_train", "x_test", "y_test")
# SHA-256 of the reviews, as Keras publishes it (keras/src/datasets/imdb.py).
IMDB_SHA256 = "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f"
# Keras' convention: 0 pads, 1 starts a review, 2 stands for every word that is too rare, and words count from 4.
_START, _RARE, _WORDS_FROM = 1, 2, 3
# Ten times MNIST; whatever is larger is another file, or a bomb.
_MAX_BYTES = 500_000_000
_IDX = {
    "train": ("train-images", "train-labels"),
    "test": ("t10k-images", "t10k-labels"),
}


def read_npz(path: Path, name: str) -> Splits:
    """Reads `x_train`, `y_train`, `x_test` and `y_test` from a `.npz` file; of text, Keras' `imdb.npz` as well.

    Raises:
      DatasetError: if it is no such file, or its arrays are not the data set's.
    """
    where = shown(path)
    try:
        with path.open("rb") as file:
            packed = file.read(_MAX_BYTES + 1)
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            sizes = {member.filename: member.file_size for member in archive.infolist()}
            missing = [key for key in KEYS if f"{key}.npy" not in sizes]
            if missing:
                raise DatasetError(f"{where}: {', '.join(missing)} is missing. It must hold {', '.join(KEYS)}.")
            if max(len(packed), sum(sizes.values())) > _MAX_BYTES:
                raise DatasetError(f"{where} unpacks to over {_MAX_BYTES:,} bytes, and is not read.")
            content = {key: archive.read(f"{key}.npy") for key in KEYS}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise DatasetError(f"{where} cannot be read as a .npz file: {reason}.") from error
    ragged = name == "text" and _dtype(content["x_train"], f"{where}: x_train").hasobject
    if ragged:
        check_digest(packed, "sha256", IMDB_SHA256, where)
    arrays = {
        key: _reviews(content[key], f"{where}: {key}")
        if ragged and key.startswith("x")
        else _array(content[key], f"{where}: {key}")
        for key in KEYS
    }
    return checked(name, where, (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"]))


def _array(content: bytes, where: str) -> NDArray[Any]:
    try:
        return npy.read_array(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, MemoryError) as error:
        raise _unreadable(where, error) from error


def _dtype(content: bytes, where: str) -> np.dtype[Any]:
    try:
        return _after_header(content)[1]
    except (ValueError, EOFError) as error:
        raise _unreadable(where, error) from error


def _unreadable(where: str, error: Exception) -> DatasetError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return DatasetError(f"{where} cannot be read: {reason}.")


def _after_header(content: bytes) -> tuple[bytes, np.dtype[Any]]:
    stream = io.BytesIO(content)
    read = npy.read_array_header_1_0 if npy.read_magic(stream) == (1, 0) else npy.read_array_header_2_0
    dtype = read(stream)[2]
    return stream.read(), dtype


def _reviews(content: bytes, where: str) -> NDArray[np.int32]:
    """Reads reviews of their own lengths, which NumPy can only pickle; they end up padded on the left."""
    return _padded(load_arrays(_after_header(content)[0], where))


def _padded(reviews: Any) -> NDArray[np.int32]:
    """Returns the end of each review, as `keras.datasets.imdb` and `pad_sequences` give it."""
    (length,) = FORMS["text"].shape
    padded = np.zeros((len(reviews), length), np.int32)
    for row, words in zip(padded, reviews, strict=True):
        tokens = np.array([_START - _WORDS_FROM, *words], np.int64)[-length:] + _WORDS_FROM
        row[length - len(tokens) :] = np.where(tokens < WORDS, tokens, _RARE)
    return padded


def read_idx(folder: Path) -> Splits:
    """Reads MNIST's four files, packed (.gz) or not, from a folder.

    Raises:
      DatasetError: if one is missing, broken, or not what it says.
    """
    read = {
        split: tuple(_idx(_idx_file(folder, name), dimensions) for name, dimensions in zip(names, (3, 1), strict=True))
        for split, names in _IDX.items()
    }
    return checked("mnist", shown(folder), (read["train"][0], read["train"][1]), (read["test"][0], read["test"][1]))


def _idx_file(folder: Path, name: str) -> Path:
    dimensions = 3 if name.endswith("images") else 1
    names = [f"{name}{dash}idx{dimensions}-ubyte{packed}" for dash in "-." for packed in ("", ".gz")]
    for one in names:
        if (folder / one).is_file():
            return folder / one
    raise DatasetError(f"{shown(folder)}: {names[0]} is missing, packed (.gz) or not.")


def _idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Reads one file: magic number, sizes, bytes. Source: http://yann.lecun.com/exdb/mnist/."""
    where = shown(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise DatasetError(f"{where} cannot be read: {reason}.") from error
    header_bytes = 4 * (1 + dimensions)
    magic = 0x800 + dimensions  # unsigned bytes, so many dimensions
    if len(content) < header_bytes or struct.unpack(">I", content[:4])[0] != magic:
        raise DatasetError(f"{where} must begin with the magic number {magic:#010x}. Received: 0x{content[:4].hex()}.")
    shape = struct.unpack(f">{dimensions}I", content[4:header_bytes])
    if len(content) != header_bytes + math.prod(shape):
        raise DatasetError(
            f"{where} must have {math.prod(shape):,} bytes behind its header, which says {shape}. "
            f"Received: {len(content) - header_bytes:,}."
        )
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)


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
