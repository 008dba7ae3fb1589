"""The data sets of the published experiments: from a file, from this machine's caches, or generated in their form."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.sources.generated_arrays import generate
from pipeline.sources.published import FORMS, WORDS, DatasetError, Splits, checked
from pipeline.sources.published_files import IMDB_SHA256, read_cifar10, read_idx, read_npz
from pipeline.text import did_you_mean, shown

# What Keras' own loaders download: file, address, SHA-256 (keras/src/datasets).
DOWNLOADS = {
    "mnist": (
        "mnist.npz",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
        "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
    ),
    "cifar10": (
        "cifar-10-python.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    "text": ("imdb.npz", "https://storage.googleapis.com/tensorflow/tf-keras-datasets/imdb.npz", IMDB_SHA256),
}
# Where the versions of Keras store the data, below its folder `datasets`.
_IN_KERAS = {
    "mnist": ("mnist.npz",),
    "cifar10": (
        "cifar-10-batches-py-target/cifar-10-batches-py",
        "cifar-10-batches-py",
        "cifar-10-batches-py.tar.gz",
        "cifar-10-python.tar.gz",
    ),
    "text": ("imdb.npz",),
}
_IN_TFDS = {"mnist": "mnist", "cifar10": "cifar10", "text": "imdb_reviews"}
_VERSION = re.compile(r"\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """A data set in memory, and where it comes from.

    Attributes:
      x_train, x_test: (examples, *shape), as stored: images uint8, tokens int32, features float32.
      y_train, y_test: (examples,) int64.
      name: "cifar10", "mnist", "text" or "features".
      kind: "file", "keras" (in Keras' cache), "tfds" (prepared by TFDS) or "generated".
      class_names: a label is an index into them.
      fingerprint: digest of the arrays.
      note: a sentence for people: what the data are, and whether an accuracy on them means anything.
    """

    x_train: NDArray[Any] = field(repr=False)
    y_train: NDArray[np.int64] = field(repr=False)
    x_test: NDArray[Any] = field(repr=False)
    y_test: NDArray[np.int64] = field(repr=False)
    name: str
    kind: str
    class_names: tuple[str, ...]
    fingerprint: str
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Returns what a results file says of the data; no path."""
        counts = Counter(self.y_train.tolist())
        return {
            "kind": self.kind,
            "name": self.name,
            "examples": len(self.y_train),
            "test_examples": len(self.y_test),
            "shape": list(self.x_train.shape[1:]),
            "classes": {name: counts.get(label, 0) for label, name in enumerate(self.class_names)},
            "fingerprint": self.fingerprint,
            "note": self.note,
        }


def open_dataset(
    name: str,
    *,
    path: str | os.PathLike[str] | None = None,
    examples: int | None = None,
    seed: int = 0,
    download: bool = False,
) -> Dataset:
    """Opens the data of a published experiment.

    Takes the first of: `path`; what Keras or TFDS stored on this machine; with `download`, what Keras downloads; data
    generated in the same form, on which an accuracy means nothing. Nothing is downloaded without `download`.

    Args:
      name: a key of `FORMS`: "cifar10", "mnist", "text" or "features".
      path: a file or folder in one of the published formats, or a `.npz` file of the four arrays.
      examples: the most training examples; test examples are cut in proportion. By default all.
      seed: for generated data.
      download: whether Keras may download the published file into its own cache.
    Raises:
      DatasetError: if `name` or `examples` is wrong, or the data cannot be read or downloaded.
    """
    if name not in FORMS:
        raise DatasetError(f"{name!r} is not a data set.{did_you_mean(name, FORMS)} Known: {', '.join(FORMS)}.")
    if examples is not None and examples < len(FORMS[name].class_names):
        raise DatasetError(
            f"`examples` must be at least {len(FORMS[name].class_names)}, one a class. Received: examples={examples}."
        )
    if path is not None:
        return _dataset(name, "file", _read(name, Path(path)), examples)
    file = _keras_file(name)
    if file is None and name in _IN_TFDS:
        splits = _prepared_by_tfds(name)
        if splits is not None:
            return _dataset(name, "tfds", splits, examples)
    if file is None and download and name in DOWNLOADS:
        file = _download(name)
    if file is not None:
        return _dataset(name, "keras", _read(name, file), examples)
    form = FORMS[name]
    train = min(examples or form.train, form.train)
    test = form.test if train == form.train else max(1, form.test * train // form.train)
    return _dataset(name, "generated", generate(name, train=train, test=test, seed=seed), None)


def _dataset(name: str, kind: str, splits: Splits, examples: int | None) -> Dataset:
    form = FORMS[name]
    if examples is not None:
        splits = splits.take(examples)
    note = {
        "file": f"{form.title}, from a file given.",
        "keras": f"{form.title}, from the file that Keras keeps.",
        "tfds": f"{form.title}, as TFDS prepared it.",
        "generated": f"generated in the form of {form.title}: no accuracy is to be read from it.",
    }[kind]
    if kind == "generated" and name == "features":
        note = "random features, as published: which side of a plane they lie on is their class."
    return Dataset(
        name=name,
        kind=kind,
        class_names=form.class_names,
        fingerprint=_fingerprint(splits),
        note=note,
        x_train=splits.x_train,
        y_train=splits.y_train,
        x_test=splits.x_test,
        y_test=splits.y_test,
    )


def _fingerprint(splits: Splits) -> str:
    digest = hashlib.sha256()
    for array in (splits.x_train, splits.y_train, splits.x_test, splits.y_test):
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _read(name: str, path: Path) -> Splits:
    if not path.exists():
        raise DatasetError(f"{shown(path)} does not exist.")
    if not (path.is_file() or path.is_dir()):
        raise DatasetError(f"{shown(path)} is neither a file nor a folder.")
    if path.suffix == ".npz":
        return read_npz(path, name)
    if name == "cifar10":
        return read_cifar10(path)
    if name == "mnist" and path.is_dir():
        return read_idx(path)
    formats = {
        "mnist": "mnist.npz, or a folder of MNIST's four idx files",
        "text": "imdb.npz, or a .npz file of x_train, y_train, x_test and y_test",
        "features": "a .npz file of x_train, y_train, x_test and y_test",
    }[name]
    raise DatasetError(f"{shown(path)} is no file of {FORMS[name].title}. Give {formats}.")


def _keras_file(name: str) -> Path | None:
    folder = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "datasets"
    return next((folder / file for file in _IN_KERAS.get(name, ()) if (folder / file).exists()), None)


def _download(name: str) -> Path:
    import keras

    file, address, sha256 = DOWNLOADS[name]
    try:
        return Path(keras.utils.get_file(file, address, file_hash=sha256))
    except Exception as error:  # Keras raises plain `Exception`
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DatasetError(f"{FORMS[name].title} cannot be fetched from {address}: {reason}.") from error


def _prepared_by_tfds(name: str) -> Splits | None:
    """Reads the newest version of a data set that TFDS has prepared on this machine; None if there is none.

    The data set is opened by its folder, without TFDS' code that could download it.
    """
    folder = Path(os.environ.get("TFDS_DATA_DIR") or Path.home() / "tensorflow_datasets") / _IN_TFDS[name]
    prepared = [path.parent for place in ("*", "plain_text/*") for path in folder.glob(f"{place}/dataset_info.json")]
    versions = [path for path in prepared if _VERSION.fullmatch(path.name)]  # other folders are incomplete
    if not versions:
        return None
    newest = max(versions, key=lambda path: tuple(map(int, path.name.split("."))))
    import tensorflow_datasets as tfds  # takes 3 s: only if there is something to read

    try:
        builder = tfds.builder_from_directory(newest)
        read = {split: tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1)) for split in ("train", "test")}
    except Exception as error:  # TFDS raises many types; all mean the same to the user
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DatasetError(f"{shown(newest)} cannot be read as TFDS prepared it: {reason}.") from error
    examples = {split: part["image"] if name != "text" else part["text"] for split, part in read.items()}
    if name == "text":
        examples = _tokenised(examples)
    return checked(
        name, shown(newest), (examples["train"], read["train"]["label"]), (examples["test"], read["test"]["label"])
    )


def _tokenised(reviews: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Numbers the words of reviews, the most frequent in training first; 0 pads on the right, 1 is a rare word."""
    import tensorflow as tf
    from keras import layers

    (length,) = FORMS["text"].shape
    tokens = layers.TextVectorization(max_tokens=WORDS, output_sequence_length=length)
    tokens.adapt(tf.data.Dataset.from_tensor_slices(reviews["train"]).batch(1024))
    batches = {split: tf.data.Dataset.from_tensor_slices(texts).batch(1024) for split, texts in reviews.items()}
    return {split: np.concatenate([np.asarray(tokens(batch)) for batch in part]) for split, part in batches.items()}
