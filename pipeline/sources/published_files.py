"""Files of the published data sets: a `.npz` file of the four arrays, and the files that `keras.datasets` keeps."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.lib import format as npy
from numpy.typing import NDArray

from unstall.pipeline.errors import first_line
from unstall.pipeline.sources.published import FORMS, WORDS, DatasetError, Splits, checked
from unstall.text import printable

KEYS = ("x_train", "y_train", "x_test", "y_test")
# Ten times MNIST; whatever is larger is another file, or a bomb.
_MAX_BYTES = 500_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KerasFile:
    """The file that a loader of `keras.datasets` looks for before it downloads.

    Attributes:
      published: its name where it is published.
      cached: its name below `datasets` in Keras' own folder.
      sha256: its checksum. Keras downloads a file with another checksum again.
      earlier: what earlier versions of Keras left in that folder, and the loader does not look at.
    """

    published: str
    cached: str
    sha256: str
    earlier: tuple[str, ...] = ()


# Source: keras/src/datasets. Keras adds "_archive" to the name of a folder that it unpacks an archive to.
KERAS_FILES = {
    "mnist": KerasFile(
        published="mnist.npz",
        cached="mnist.npz",
        sha256="731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
    ),
    "cifar10": KerasFile(
        published="cifar-10-python.tar.gz",
        cached="cifar-10-batches-py-target_archive",
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        earlier=(
            "cifar-10-python.tar.gz",
            "cifar-10-batches-py.tar.gz",
            "cifar-10-batches-py",
            "cifar-10-batches-py-target",
        ),
    ),
    "text": KerasFile(
        published="imdb.npz",
        cached="imdb.npz",
        sha256="69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f",
    ),
}


def read_npz(path: Path, name: str) -> Splits:
    """Reads `x_train`, `y_train`, `x_test` and `y_test` from a `.npz` file.

    Raises:
      DatasetError: if it is no such file, or its arrays are not the data set's.
    """
    where = printable(path)
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
    arrays = {key: _array(content[key], f"{where}: {key}", name) for key in KEYS}
    return checked(name, where, (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"]))


def _array(content: bytes, where: str, name: str) -> NDArray[Any]:
    try:
        return npy.read_array(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, MemoryError) as error:
        raise DatasetError(f"{where} cannot be read: {first_line(error)}. {readable_forms(name)}") from error


def readable_forms(name: str) -> str:
    """Says in a sentence which files of a data set are read."""
    npz = f"Give a .npz file of {', '.join(KEYS[:-1])} and {KEYS[-1]}"
    return f"{npz}, or none and {_for_keras(name)}." if name in KERAS_FILES else f"{npz}."


def _for_keras(name: str) -> str:
    file = KERAS_FILES[name]
    return (
        f"put {file.published} at {printable(_keras_folder() / file.cached)}, where keras.datasets reads it, "
        "or let Keras fetch it (--download)"
    )


def _keras_home() -> str:
    """Returns Keras' own folder by Keras' own rule. Keras need not be imported for it."""
    return os.path.expanduser(os.environ.get("KERAS_HOME", "~/.keras"))


def _keras_folder() -> Path:
    return Path(_keras_home(), "datasets")


def kept_by_keras(name: str, *, download: bool) -> bool:
    """Says whether `keras.datasets` reads a data set from this machine, so that it downloads nothing.

    Args:
      name: a key of `KERAS_FILES`.
      download: whether Keras may download. A file that it would not read is then no error.
    Raises:
      DatasetError: if there is a file, and Keras would download another.
    """
    reason = _reason_to_download(name)
    if reason and not download:
        raise DatasetError(reason)
    return not reason and (_keras_folder() / KERAS_FILES[name].cached).exists()


def _reason_to_download(name: str) -> str | None:
    """Says why Keras would not read what is in its folder, and what to do; None if it would, or if there is nothing."""
    file = KERAS_FILES[name]
    path = _keras_folder() / file.cached
    advice = f"To read {FORMS[name].title}, {_for_keras(name)}."
    if not path.exists():
        for other in map(path.with_name, file.earlier):
            if other.exists():
                return f"{printable(other)} is not read: keras.datasets looks for {file.cached} there. {advice}"
        return None
    if not os.access(_keras_home(), os.W_OK):  # Keras then looks in /tmp/.keras
        home = printable(_keras_home())
        return f"{printable(path)} is not read: Keras must be able to write to {home}. Set KERAS_HOME to a copy of it."
    try:
        with path.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        return f"{printable(path)} cannot be read: {error.strerror}. {advice}"
    if sha256 != file.sha256:
        problem = f"is not the published file: its SHA-256 is {sha256}, published is {file.sha256}."
        return f"{printable(path)} {problem} {advice}"
    return None


def read_by_keras(name: str) -> Splits:
    """Reads a data set through `keras.datasets`, which downloads it unless `kept_by_keras`.

    Reviews are as Keras' examples have them: the `WORDS` most frequent words, padded and cut on the left.

    Args:
      name: a key of `KERAS_FILES`.
    Raises:
      DatasetError: if Keras cannot read or download it.
    """
    import keras

    try:
        if name == "text":
            (length,) = FORMS["text"].shape
            train, test = (
                (keras.utils.pad_sequences(reviews, maxlen=length), labels)
                for reviews, labels in keras.datasets.imdb.load_data(num_words=WORDS)
            )
        else:
            train, test = getattr(keras.datasets, name).load_data()
    except Exception as error:  # Keras raises bare ones
        raise DatasetError(f"keras.datasets cannot load {FORMS[name].title}: {first_line(error)}.") from error
    return checked(name, "keras.datasets", train, test)
