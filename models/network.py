"""What every network of the catalogue says of itself: its input and data, its training, where it was published."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from models.published import Figure

INPUT_DTYPES = ("float32", "int32")
# "photos" is whatever folder of class folders a user gives; the others name published data sets.
DATA = ("photos", "cifar10", "mnist", "text", "features")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a network was trained where it was published.

    Attributes:
      optimizer: the name that Keras knows it by, such as "adam".
      learning_rate: None for Keras' own default.
      batch_size: examples a step; None for all of them in one.
      epochs: rounds of `fit`.
      steps_per_epoch: steps in each of them; None for one pass over the data.
      loss: the name that Keras knows it by, for the published number of classes and integer labels.
      metrics: likewise.
    """

    optimizer: str
    batch_size: int | None
    epochs: int
    loss: str
    learning_rate: float | None = None
    steps_per_epoch: int | None = None
    metrics: tuple[str, ...] = ("accuracy",)

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "steps_per_epoch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}.")
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise ValueError(f"`learning_rate` must be above 0. Received: learning_rate={self.learning_rate}.")

    @property
    def images_seen(self) -> int | None:
        """Examples of the whole training, epochs x steps x batch; None where an epoch is one pass over the data."""
        if self.steps_per_epoch is None or self.batch_size is None:
            return None
        return self.epochs * self.steps_per_epoch * self.batch_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Network(ABC):
    """A published network: frozen data, and the one method that builds it.

    Attributes:
      input_shape: of one example, without the batch axis.
      input_dtype: "float32", images in [0, 1] and features; "int32", tokens.
      data: what it was published with, one of `DATA`.
      classes: in that data; None where the data are photos of the user's.
      training: how it was trained.
      source: where it was published.
      published: the figures printed there.
    """

    input_shape: tuple[int, ...]
    data: str
    training: Training
    source: str
    input_dtype: str = "float32"
    classes: int | None = None
    published: tuple[Figure, ...] = ()

    def __post_init__(self) -> None:
        if not self.input_shape or any(side < 1 for side in self.input_shape):
            raise ValueError(
                f"`input_shape` must be whole numbers above 0. Received: input_shape={self.input_shape!r}."
            )
        if self.input_dtype not in INPUT_DTYPES:
            raise ValueError(
                f"`input_dtype` must be one of {', '.join(INPUT_DTYPES)}. Received: input_dtype={self.input_dtype!r}."
            )
        if self.data not in DATA:
            raise ValueError(f"`data` must be one of {', '.join(DATA)}. Received: data={self.data!r}.")
        if self.classes is not None:
            check_classes(self.classes)

    @property
    def image_size(self) -> tuple[int, int]:
        """(height, width) in pixels, of networks that take images of 3 channels; the others have no such attribute."""
        if len(self.input_shape) != 3 or self.input_shape[2] != 3:
            raise AttributeError(f"a network that takes {self.input_shape} has no `image_size`")
        return self.input_shape[0], self.input_shape[1]

    @abstractmethod
    def build(self, classes: int) -> Any:
        """Returns the `keras.Model`, not compiled.

        Args:
          classes: at least 2.
        """


def check_classes(classes: int) -> None:
    """Refuses a number of classes that nothing can be learnt from.

    Raises:
      ValueError: if it is below 2.
    """
    if classes < 2:
        raise ValueError(f"`classes` must be at least 2. Received: classes={classes}.")


def output_layer(classes: int) -> Any:
    """Returns the last layer: one sigmoid output for two classes, else a softmax of all."""
    from keras import layers

    two = classes == 2
    return layers.Dense(1 if two else classes, activation="sigmoid" if two else "softmax")
