"""The other published data sets in files: NumPy's `.npz`, MNIST's own idx files, Keras' file of reviews."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pipeline.checked_pickles import check_digest, load_arrays
from pipeline.published_data import FORMS, WORDS, DatasetError, Splits, checked
from pipeline.sources import shown

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
