"""TensorFlow's CIFAR-10 tutorial network of 2015, in Keras 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from models.network import Network, check_classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cifar10Tutorial(Network):
    """Two convolutions, each pooled and normalised over its channels, then two hidden layers.

    Convolution, pool, normalisation; convolution, normalisation, pool: that order, the initial weights and the weight
    decay are the tutorial's. It ends in a softmax where the tutorial has logits, which its loss puts through one.

    Attributes:
      filters: of both convolutions, 5x5, relu, padding "same".
      dense: units of the hidden layers, relu.
      weight_decay: on the hidden layers' weights; the factor in front of half their squared sum.
    Source: tensorflow/models, tutorials/image/cifar10/cifar10.py.
    """

    filters: int = 64
    dense: tuple[int, ...] = (384, 192)
    weight_decay: float = 0.004

    def build(self, classes: int) -> Any:
        """Builds the network, not compiled: as many outputs as there are classes, for two as well.

        Args:
          classes: at least 2.
        """
        check_classes(classes)
        import keras
        from keras import initializers, layers, regularizers

        from models.normalization import LocalResponseNormalization

        def convolution(bias: float) -> Any:
            return layers.Conv2D(
                self.filters,
                5,
                activation="relu",
                padding="same",
                kernel_initializer=initializers.TruncatedNormal(stddev=0.05),
                bias_initializer=initializers.Constant(bias),
            )

        model = keras.Sequential([keras.Input(self.input_shape)])
        model.add(convolution(0.0))
        model.add(layers.MaxPooling2D(3, strides=2, padding="same"))
        model.add(LocalResponseNormalization())
        model.add(convolution(0.1))
        model.add(LocalResponseNormalization())
        model.add(layers.MaxPooling2D(3, strides=2, padding="same"))
        model.add(layers.Flatten())
        for units in self.dense:
            model.add(
                layers.Dense(
                    units,
                    activation="relu",
                    kernel_initializer=initializers.TruncatedNormal(stddev=0.04),
                    bias_initializer=initializers.Constant(0.1),
                    # TensorFlow's `l2_loss` halves the sum of squares, Keras' regulariser does not.
                    kernel_regularizer=regularizers.L2(self.weight_decay / 2),
                )
            )
        last = self.dense[-1]
        model.add(
            layers.Dense(
                classes, activation="softmax", kernel_initializer=initializers.TruncatedNormal(stddev=1 / last)
            )
        )
        return model
