"""The data behind the published experiments: from a `.npz` file, from Keras' or TFDS' folder, or generated."""

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

from unstall.pipeline.errors import first_line
from unstall.pipeline.sources.generated_arrays import generate
from unstall.pipeline.sources.published import FORMS, WORDS, DatasetError, Splits, checked
from unstall.pipeline.sources.published_files import KERAS_FILES, kept_by_keras, read_by_keras, read_npz, readable_forms
from unstall.text import did_you_mean, printable

_IN_TFDS = {"mnist": "mnist", "cifar10": "cifar10", "text": "imdb_reviews"}
_VERSION = re.compile(r"\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """A data set in memory, and where it comes from.

    Attributes:
      x_train: (examples, *shape), as stored: images uint8, tokens int32, features float32.
      y_train: (examples,) int64.
      x_test: likewise.
      y_test: likewise.
      name: "cifar10", "mnist", "text" or "features".
      kind: "file", "keras" (read by `keras.datasets`), "tfds" (prepared by TFDS) or "generated".
      class_names: a label is an index into them.
      fingerprint: of the arrays' content.
      note: one sentence for people, which says what the data are, and whether an accuracy can be read from them.
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

    In this order: `path`; what Keras or TFDS keeps on this machine; with `download` what Keras downloads; data
    generated in the same form, from which no accuracy is to be read. Nothing is downloaded without `download`.

    Args:
      name: a key of `FORMS`: "cifar10", "mnist", "text" or "features".
      path: a `.npz` file of `x_train`, `y_train`, `x_test` and `y_test`.
      examples: to train on, at most; tests shrink with them. All of them unless given.
      seed: of generated data.
      download: whether `keras.datasets` may download the published file into Keras' own folder.
    Raises:
      DatasetError: if the data are there and cannot be read, or what was asked for cannot be had.
    """
    if name not in FORMS:
        raise DatasetError(f"{name!r} is not a data set.{did_you_mean(name, FORMS)} Known: {', '.join(FORMS)}.")
    if examples is not None and examples < len(FORMS[name].class_names):
        raise DatasetError(
            f"`examples` must be at least {len(FORMS[name].class_names)}, one a class. Received: examples={examples}."
        )
    if path is not None:
        return _dataset(name, "file", _read(name, Path(path)), examples)
    if name in KERAS_FILES and kept_by_keras(name, download=download):
        return _dataset(name, "keras", read_by_keras(name), examples)
    if name in _IN_TFDS:
        splits = _prepared_by_tfds(name)
        if splits is not None:
            return _dataset(name, "tfds", splits, examples)
    if name in KERAS_FILES and download:
        return _dataset(name, "keras", read_by_keras(name), examples)
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
        "keras": f"{form.title}, from keras.datasets.",
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
        raise DatasetError(f"{printable(path)} does not exist.")
    if path.suffix != ".npz" or not path.is_file():
        raise DatasetError(f"{printable(path)} is no .npz file, and is not read. {readable_forms(name)}")
    return read_npz(path, name)


def _prepared_by_tfds(name: str) -> Splits | None:
    """Reads what TFDS has prepared on this machine, the newest version of it; None where it has not.

    It is opened by its folder, which needs none of the code that could fetch it.
    """
    folder = Path(os.environ.get("TFDS_DATA_DIR") or Path.home() / "tensorflow_datasets") / _IN_TFDS[name]
    prepared = [path.parent for place in ("*", "plain_text/*") for path in folder.glob(f"{place}/dataset_info.json")]
    versions = [path for path in prepared if _VERSION.fullmatch(path.name)]  # others are begun, and not whole
    if not versions:
        return None
    newest = max(versions, key=lambda path: tuple(map(int, path.name.split("."))))
    import tensorflow_datasets as tfds  # 3 s: only where there is something to read

    try:
        builder = tfds.builder_from_directory(newest)
        read = {split: tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1)) for split in ("train", "test")}
    except Exception as error:  # TFDS raises its own many kinds; all mean the same to the user
        raise DatasetError(f"{printable(newest)} cannot be read as TFDS prepared it: {first_line(error)}.") from error
    examples = {split: part["image"] if name != "text" else part["text"] for split, part in read.items()}
    if name == "text":
        examples = _tokenised(examples)
    return checked(
        name, printable(newest), (examples["train"], read["train"]["label"]), (examples["test"], read["test"]["label"])
    )


def _tokenised(reviews: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Numbers the words of reviews by how often they come in training; 0 pads on the right, 1 is a rare word."""
    import tensorflow as tf
    from keras import layers

    (length,) = FORMS["text"].shape
    tokens = layers.TextVectorization(max_tokens=WORDS, output_sequence_length=length)
    tokens.adapt(tf.data.Dataset.from_tensor_slices(reviews["train"]).batch(1024))
    batches = {split: tf.data.Dataset.from_tensor_slices(texts).batch(1024) for split, texts in reviews.items()}
    return {split: np.concatenate([np.asarray(tokens(batch)) for batch in part]) for split, part in batches.items()}
