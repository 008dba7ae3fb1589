"""Stacks of convolution and pooling: the cat/dog networks, and the digits'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from models.network import Network, check_classes, output_layer


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvNet(Network):
    """A stack of 3x3 convolutions and pooling, then a hidden and an output layer.

    Attributes:
      filters: of each convolution that a max-pool 2 follows; relu, padding "valid".
      extra: further convolutions, padding "same".
      extra_after: how many pairs come before them.
      dense: units of the hidden layer, relu; 0 for none.
      dropout: rate in front of the output layer.
    """

    filters: tuple[int, ...]
    extra: int = 0
    extra_after: int = 0
    dense: int = 128
    dropout: float = 0.0

    def build(self, classes: int) -> Any:
        """Builds the network, not compiled: one sigmoid output for two classes, else a softmax of all.

        Args:
          classes: at least 2.
        """
        check_classes(classes)
        import keras
        from keras import layers

        model = keras.Sequential([keras.Input(self.input_shape)])
        for pair, filters in enumerate(self.filters, start=1):
            model.add(layers.Conv2D(filters, 3, activation="relu"))
            model.add(layers.MaxPooling2D(2))
            if pair == self.extra_after:
                for _ in range(self.extra):
                    model.add(layers.Conv2D(filters, 3, activation="relu", padding="same"))
        model.add(layers.Flatten())
        if self.dense:
            model.add(layers.Dense(self.dense, activation="relu"))
        if self.dropout:
            model.add(layers.Dropout(self.dropout))
        model.add(output_layer(classes))
        return model
