"""`Network`, the base of every network in the catalogue: its input, data and training, and its published figures."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


def _number(value: float) -> str:
    return f"{value:,.4f}".rstrip("0").rstrip(".") if value < 1000 else f"{value:,.0f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds, 2), 60)
    hours, minutes = divmod(minutes, 60)
    before = f"{hours:.0f} h {minutes:.0f} min " if hours else f"{minutes:.0f} min " if minutes else ""
    return f"{before}{_number(rest)} s"


def _percent(ratio: float) -> str:
    return f"{_number(100 * ratio)} %"


def _times(ratio: float) -> str:
    return f"{_number(ratio)}x"


# The quantities of published figures: what each means, and the function that writes a value with its unit.
QUANTITIES: MappingProxyType[str, tuple[str, Callable[[float], str]]] = MappingProxyType(
    {
        "train_s": ("seconds that the whole training took", _duration),
        "images_per_sec": ("images trained on a second", _number),
        "speed_up": ("the GPU's rate over the CPU's, of the same training", _times),
        "rate_ratio": ("images/sec over those of the other run that `when` names, on the same device", _times),
        "accuracy": ("share of the test data that is classified rightly", _percent),
        "gpu_ratio": ("share of the time that the GPU is busy", _percent),
        "cpu_ratio": ("share of the CPU that is busy", _percent),
    }
)
_UNITS = {
    "images_per_sec": " images/sec",
    "rate_ratio": " as fast",
    "gpu_ratio": " of the GPU",
    "cpu_ratio": " of the CPU",
}
# Quantities that lie between 0 and 1.
_SHARES = ("accuracy", "gpu_ratio", "cpu_ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published number, or range of numbers.

    Attributes:
      quantity: a key of `QUANTITIES`.
      low: the smallest published value, in the unit at the end of the quantity's name.
      high: the largest published value; equal to `low` if there is only one.
      on: the device, as published.
      when: the conditions of the measurement; "" if the network and the device say everything.
    """

    quantity: str
    low: float
    high: float
    on: str
    when: str = ""

    def __post_init__(self) -> None:
        if self.quantity not in QUANTITIES:
            raise ValueError(
                f"`quantity` must be one of {', '.join(QUANTITIES)}. Received: quantity={self.quantity!r}."
            )
        bounds = f"low={self.low}, high={self.high}"
        if not (math.isfinite(self.high) and 0 <= self.low <= self.high):
            raise ValueError(f"`low` and `high` must be 0 <= low <= high, and finite. Received: {bounds}.")
        # A share may be 0, such as that of an idle GPU. A time or a rate of 0 is a typing error.
        if self.quantity not in _SHARES and self.low == 0:
            raise ValueError(f"`{self.quantity}` must be above 0. Received: {bounds}.")
        if self.quantity in _SHARES and self.high > 1:
            raise ValueError(f"`{self.quantity}` is a share, 0 to 1. Received: {bounds}.")
        if not self.on.strip():
            raise ValueError(f"`on` must name the device. Received: on={self.on!r}.")

    @property
    def text(self) -> str:
        """The value with its unit, such as "15,000 to 17,000 images/sec" or "8 min 5 s"."""
        if self.quantity == "rate_ratio" and self.low == self.high == 1:
            return "as fast"
        _, format_value = QUANTITIES[self.quantity]
        low, high = format_value(self.low), format_value(self.high)
        if low != high:
            low = low.removesuffix(" %") if high.endswith(" %") else low
            low = f"{low} to {high}"
        return low + _UNITS.get(self.quantity, "")


def figure(quantity: str, value: float, on: str, when: str = "") -> Figure:
    """Returns the `Figure` of a single published value."""
    return Figure(quantity=quantity, low=value, high=value, on=on, when=when)


INPUT_DTYPES = ("float32", "int32")
# "photos" is a folder of class folders that the user gives; the others are published data sets.
DATA = ("photos", "cifar10", "mnist", "text", "features")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How the publication trained a network.

    Attributes:
      optimizer: Keras' name of the optimizer, such as "adam".
      learning_rate: None for Keras' default.
      batch_size: examples per step; None for all examples in one step.
      epochs: number of epochs.
      steps_per_epoch: None for one pass over the data.
      loss: Keras' name of the loss for integer labels and the published number of classes.
      metrics: Keras' names of the metrics.
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
        """Examples in the whole training (epochs x steps x batch size); None if an epoch is one pass over the data."""
        if self.steps_per_epoch is None or self.batch_size is None:
            return None
        return self.epochs * self.steps_per_epoch * self.batch_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Network(ABC):
    """A published network: what is known of it, and the method that builds it.

    Attributes:
      input_shape: shape of an example, without the batch axis.
      input_dtype: "float32" for images in [0, 1] and for features, "int32" for tokens.
      data: the data set of the publication, one of `DATA`.
      classes: number of classes in that data set; None for "photos".
      training: how the publication trained the network.
      source: where the network was published.
      published: the figures of the publication.
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
        """(height, width) in pixels. `hasattr` is False for networks that do not take images of 3 channels."""
        if len(self.input_shape) != 3 or self.input_shape[2] != 3:
            raise AttributeError(f"a network that takes {self.input_shape} has no `image_size`")
        return self.input_shape[0], self.input_shape[1]

    @property
    def least_side(self) -> int:
        """The fewest pixels a side of an image that the network's layers can take."""
        return 1

    @abstractmethod
    def build(self, classes: int) -> Any:
        """Returns the network as a `keras.Model` that is not compiled.

        Args:
          classes: number of classes, at least 2.
        Raises:
          ValueError: if `classes` is below 2.
        """


def check_classes(classes: int) -> None:
    """Checks a number of classes.

    Raises:
      ValueError: if `classes` is below 2.
    """
    if classes < 2:
        raise ValueError(f"`classes` must be at least 2. Received: classes={classes}.")


def output_layer(classes: int) -> Any:
    """Returns the last layer of a network: one sigmoid output for two classes, else a softmax over the classes."""
    from keras import layers

    if classes == 2:
        return layers.Dense(1, activation="sigmoid")
    return layers.Dense(classes, activation="softmax")
