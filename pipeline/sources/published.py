"""What the data sets of the published experiments are: their shapes, types, sizes and classes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.pipeline.errors import SourceError

# Tokens are 0 (padding) to WORDS - 1.
WORDS = 20_000


class DatasetError(SourceError):
    """A data set that cannot be used; the message says what, where, the rule and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a data set's arrays are, whoever made them.

    Attributes:
      shape: of one example.
      dtype: as stored: images are bytes until they are fed.
      class_names: a label is an index into them.
      train: examples to train on, as published.
      test: examples to test on, as published.
      title: what people call it.
    """

    shape: tuple[int, ...]
    dtype: str
    class_names: tuple[str, ...]
    train: int
    test: int
    title: str


FORMS = {
    "mnist": Form(
        shape=(28, 28, 1),
        dtype="uint8",
        class_names=tuple("0123456789"),
        train=60_000,
        test=10_000,
        title="MNIST",
    ),
    "cifar10": Form(
        shape=(32, 32, 3),
        dtype="uint8",
        # In the order of the labels. Source: https://www.cs.toronto.edu/~kriz/cifar.html.
        class_names=(
            *("airplane", "automobile", "bird", "cat", "deer"),
            *("dog", "frog", "horse", "ship", "truck"),
        ),
        train=50_000,
        test=10_000,
        title="CIFAR-10",
    ),
    "text": Form(
        shape=(200,),
        dtype="int32",
        class_names=("negative", "positive"),
        train=25_000,
        test=25_000,
        title="the IMDB reviews",
    ),
    "features": Form(
        shape=(1000,),
        dtype="float32",
        class_names=("0", "1"),
        train=10_000,
        # The publication tests on nothing; a fifth shows whether a network learnt the rule or the examples.
        test=2_000,
        title="random features",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Splits:
    """The four arrays of a data set: examples (examples, *shape) as stored, labels (examples,) int64."""

    x_train: NDArray[Any] = field(repr=False)
    y_train: NDArray[np.int64] = field(repr=False)
    x_test: NDArray[Any] = field(repr=False)
    y_test: NDArray[np.int64] = field(repr=False)

    def take(self, examples: int) -> Splits:
        """Returns at most `examples` to train on and a like part of the tests, spread evenly over their order."""
        total = len(self.y_train)
        if examples >= total:
            return self
        train = np.linspace(0, total - 1, examples).round().astype(int)
        tests = max(1, len(self.y_test) * examples // total)
        test = np.linspace(0, len(self.y_test) - 1, tests).round().astype(int)
        return replace(
            self,
            x_train=self.x_train[train],
            y_train=self.y_train[train],
            x_test=self.x_test[test],
            y_test=self.y_test[test],
        )


def checked(name: str, where: str, train: tuple[Any, Any], test: tuple[Any, Any]) -> Splits:
    """Checks arrays against the form of a data set, and returns them in it.

    Args:
      name: a key of `FORMS`.
      where: the file that they come from, for the message.
      train: examples and labels.
      test: likewise.
    Raises:
      DatasetError: if they have other shapes, types or labels.
    """
    x_train, y_train = _checked(FORMS[name], where, "train", *train)
    x_test, y_test = _checked(FORMS[name], where, "test", *test)
    return Splits(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def _checked(form: Form, where: str, split: str, x: Any, y: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    x, y = np.asarray(x), np.asarray(y)
    if form.shape[-1] == 1 and x.shape[1:] == form.shape[:-1]:
        x = x[..., np.newaxis]  # a channel that the file leaves out
    kind = np.dtype(form.dtype).kind
    # Tokens may be stored in any integers, features in any floats; images are bytes, and no others.
    fits = x.dtype == form.dtype if kind == "u" else x.dtype.kind in {"i": "iu", "f": "f"}[kind]
    if x.shape[1:] != form.shape or not len(x) or not fits:
        rule = f"{form.dtype} of shape (examples, {', '.join(map(str, form.shape))})"
        raise DatasetError(f"{where}: x_{split} must be {rule}. Received: {x.dtype} of shape {x.shape}.")
    if kind == "i" and not (x.min() >= 0 and x.max() < WORDS):
        raise DatasetError(
            f"{where}: the tokens of x_{split} must lie in 0 to {WORDS - 1}. Received: {x.min()} to {x.max()}."
        )
    if kind == "f" and not np.isfinite(x).all():
        raise DatasetError(f"{where}: the features of x_{split} must be finite numbers.")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.shape != (len(x),) or y.dtype.kind not in "iu":
        raise DatasetError(
            f"{where}: y_{split} must be one integer for each of the {len(x):,} examples. "
            f"Received: {y.dtype} of shape {y.shape}."
        )
    classes = len(form.class_names)
    if y.min() < 0 or y.max() >= classes:
        raise DatasetError(
            f"{where}: the labels of y_{split} must lie in 0 to {classes - 1}. Received: {y.min()} to {y.max()}."
        )
    return x.astype(form.dtype, copy=False), y.astype(np.int64)
