"""Networks of dense layers only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from models.network import Network, check_classes


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseNet(Network):
    """Hidden layers of relu units, and one output a class.

    Attributes:
      hidden: units of each hidden layer.
      output: activation of the last layer. With "sigmoid", Keras' cross-entropy still divides by the outputs' sum.
    """

    hidden: tuple[int, ...]
    output: str = "softmax"

    def build(self, classes: int) -> Any:
        """Builds the network, not compiled: as many outputs as there are classes, for two as well.

        Args:
          classes: at least 2.
        """
        check_classes(classes)
        import keras
        from keras import layers

        model = keras.Sequential([keras.Input(self.input_shape, dtype=self.input_dtype)])
        if len(self.input_shape) > 1:
            model.add(layers.Flatten())
        for units in self.hidden:
            model.add(layers.Dense(units, activation="relu"))
        model.add(layers.Dense(classes, activation=self.output))
        return model
