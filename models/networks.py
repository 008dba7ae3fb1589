"""The networks that get fed, backend-neutral, each with the image size that it decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvNet:
    """A stack of 3x3 convolutions and pooling, then a hidden and an output layer.

    Attributes:
      image_size: (height, width) in pixels.
      filters: of each convolution that a max-pool 2 follows; relu, padding "valid".
      extra: further convolutions, padding "same".
      extra_after: how many pairs come before them.
      dense: units of the hidden layer, relu.
      dropout: rate in front of the output layer.
      source: where the network was published.
    """

    image_size: tuple[int, int]
    filters: tuple[int, ...]
    source: str
    extra: int = 0
    extra_after: int = 0
    dense: int = 128
    dropout: float = 0.0

    def build(self, classes: int) -> Any:
        """Builds the network, not compiled: one sigmoid output for two classes, else a softmax of all.

        Args:
          classes: at least 2.
        """
        if classes < 2:
            raise ValueError(f"`classes` must be at least 2. Received: classes={classes}.")
        import keras
        from keras import layers

        model = keras.Sequential([keras.Input((*self.image_size, 3))])
        for pair, filters in enumerate(self.filters, start=1):
            model.add(layers.Conv2D(filters, 3, activation="relu"))
            model.add(layers.MaxPooling2D(2))
            if pair == self.extra_after:
                for _ in range(self.extra):
                    model.add(layers.Conv2D(filters, 3, activation="relu", padding="same"))
        model.add(layers.Flatten())
        model.add(layers.Dense(self.dense, activation="relu"))
        if self.dropout:
            model.add(layers.Dropout(self.dropout))
        two = classes == 2
        model.add(layers.Dense(1 if two else classes, activation="sigmoid" if two else "softmax"))
        return model


_TUTORIAL = "the Keras cat/dog tutorial: two pairs of convolution and max-pool"
_UPGRADE = "the write-up that grew from it"

MODELS: dict[str, ConvNet] = {
    "cats-dogs-64": ConvNet(image_size=(64, 64), filters=(32, 32), source=_TUTORIAL),
    "cats-dogs-64-deeper": ConvNet(image_size=(64, 64), filters=(32, 32, 64), source=_UPGRADE),
    "cats-dogs-64-dropout": ConvNet(image_size=(64, 64), filters=(32, 32, 64), dropout=0.5, source=_UPGRADE),
    "cats-dogs-128": ConvNet(image_size=(128, 128), filters=(64, 64, 64, 64), dropout=0.5, source=_UPGRADE),
    "cats-dogs-very-deep": ConvNet(
        image_size=(128, 128),
        filters=(64, 64, 64, 64),
        dropout=0.5,
        # Where the sides are 63 px: deep and slow, as the write-up found it ("CPU about 3 images/sec").
        extra=30,
        extra_after=1,
        source=_UPGRADE,
    ),
}
