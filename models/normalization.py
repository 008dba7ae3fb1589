"""Local response normalisation, which Keras 3 has no layer for; imports Keras, so it is imported late."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops


@keras.saving.register_keras_serializable(package="unstall")
class LocalResponseNormalization(keras.layers.Layer):
    """Divides each value by a power of the squares of its neighbours among the channels.

    x / (bias + alpha * sum of x^2 over the channels within `radius`) ** beta, as `tf.nn.local_response_normalization`
    has it, on any backend: the sums over channels are one product with a matrix of ones along the diagonal.

    Args:
      radius: channels to either side.
      bias, alpha, beta: of the formula; the defaults are those of TensorFlow's CIFAR-10 tutorial.
    Source: Krizhevsky, Sutskever, Hinton: ImageNet Classification with Deep CNNs, 2012, section 3.3.
    """

    def __init__(
        self, radius: int = 4, *, bias: float = 1.0, alpha: float = 0.001 / 9, beta: float = 0.75, **layer: Any
    ) -> None:
        super().__init__(**layer)
        self.radius, self.bias, self.alpha, self.beta = radius, bias, alpha, beta

    def build(self, input_shape: tuple[int, ...]) -> None:
        """Makes the matrix that adds up neighbours: (channels, channels)."""
        channels = np.arange(input_shape[-1])
        near = abs(channels[:, None] - channels[None, :]) <= self.radius
        self._near = near.astype(np.float32)

    def call(self, inputs: Any) -> Any:
        """Normalises (..., channels)."""
        near = ops.cast(self._near, inputs.dtype)
        squares = ops.matmul(ops.square(inputs), near)
        return inputs / ops.power(self.bias + self.alpha * squares, self.beta)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        settings = {"radius": self.radius, "bias": self.bias, "alpha": self.alpha, "beta": self.beta}
        return {**super().get_config(), **settings}
