"""A Keras layer for local response normalisation, which Keras 3 lacks. Importing this module imports Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops


@keras.saving.register_keras_serializable(package="unstall")
class LocalResponseNormalization(keras.layers.Layer):
    """Divides each value by a power of the squares of its neighbours among the channels.

    x / (bias + alpha * sum of x^2 over the channels within `radius`) ** beta, as in
    `tf.nn.local_response_normalization`, on any backend: a product with a band matrix of ones sums over the channels.

    Args:
      radius: number of channels on either side.
      bias, alpha, beta: numbers in the formula; the defaults are those of TensorFlow's CIFAR-10 tutorial.
    Source: Krizhevsky, Sutskever, Hinton: ImageNet Classification with Deep CNNs, 2012, section 3.3.
    """

    def __init__(
        self, radius: int = 4, *, bias: float = 1.0, alpha: float = 0.001 / 9, beta: float = 0.75, **layer: Any
    ) -> None:
        super().__init__(**layer)
        self.radius, self.bias, self.alpha, self.beta = radius, bias, alpha, beta

    def build(self, input_shape: tuple[int, ...]) -> None:
        """Makes the matrix that adds up neighbouring channels, shape (channels, channels)."""
        channels = np.arange(input_shape[-1])
        near = abs(channels[:, None] - channels[None, :]) <= self.radius
        self._near = near.astype(np.float32)

    def call(self, inputs: Any) -> Any:
        """Returns the normalised inputs, shape (..., channels)."""
        near = ops.cast(self._near, inputs.dtype)
        squares = ops.matmul(ops.square(inputs), near)
        return inputs / ops.power(self.bias + self.alpha * squares, self.beta)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        settings = {"radius": self.radius, "bias": self.bias, "alpha": self.alpha, "beta": self.beta}
        return {**super().get_config(), **settings}
