"""The kinds of network in the catalogue: convolutional, dense, for text, and that of the CIFAR-10 tutorial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unstall.models.network import Network, check_classes, output_layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Cifar10Tutorial(Network):
    """Two convolutions, each pooled and normalised over its channels, then two hidden layers. One output per class.

    The order (convolution, pool, normalisation, then convolution, normalisation, pool), the initial weights and the
    weight decay are the tutorial's. The last layer is a softmax; the tutorial ends in logits, and its loss applies the
    softmax.

    Attributes:
      filters: number of filters in each convolution (5x5, relu, padding "same").
      dense: units of each hidden layer (relu).
      weight_decay: the loss contains this factor times half the sum of the squares of the hidden layers' weights.
    Source: tensorflow/models, tutorials/image/cifar10/cifar10.py.
    """

    filters: int = 64
    dense: tuple[int, ...] = (384, 192)
    weight_decay: float = 0.004

    def build(self, classes: int) -> Any:
        """See `Network.build`."""
        check_classes(classes)
        import keras
        from keras import initializers, layers, regularizers

        from unstall.models.normalization import LocalResponseNormalization

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
                    # The tutorial's `tf.nn.l2_loss` halves the sum of squares; Keras' regulariser does not.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TextNet(Network):
    """An embedding, a convolution over the words, global max-pooling, a hidden layer and `output_layer`.

    Attributes:
      words: size of the vocabulary; tokens are 0 (padding) to words - 1.
      embedding: length of a word's vector.
      filters: number of filters in the convolution, which is three words wide (relu, padding "valid").
      dense: units of the hidden layer (relu).
      dropout: rate after the embedding and after the hidden layer.
    """

    words: int
    embedding: int
    filters: int
    dense: int
    dropout: float

    def build(self, classes: int) -> Any:
        """See `Network.build`."""
        check_classes(classes)
        import keras
        from keras import layers

        return keras.Sequential(
            [
                keras.Input(self.input_shape, dtype=self.input_dtype),
                layers.Embedding(self.words, self.embedding),
                layers.Dropout(self.dropout),
                layers.Conv1D(self.filters, 3, activation="relu"),
                layers.GlobalMaxPooling1D(),
                layers.Dense(self.dense, activation="relu"),
                layers.Dropout(self.dropout),
                output_layer(classes),
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvNet(Network):
    """Pairs of a 3x3 convolution and a 2x2 max-pool, then a hidden layer and `output_layer`.

    Attributes:
      filters: number of filters in each pair's convolution (relu, padding "valid").
      extra: number of further 3x3 convolutions (relu, padding "same").
      extra_after: number of pairs in front of the further convolutions.
      dense: units of the hidden layer (relu); 0 for no hidden layer.
      dropout: rate in front of the output layer.
    """

    filters: tuple[int, ...]
    extra: int = 0
    extra_after: int = 0
    dense: int = 128
    dropout: float = 0.0

    @property
    def least_side(self) -> int:
        """See `Network.least_side`: a convolution takes two pixels of a side, and a pool halves what is left."""
        side = 1
        for _ in self.filters:
            side = 2 * side + 2
        return side

    def build(self, classes: int) -> Any:
        """See `Network.build`."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseNet(Network):
    """Hidden layers, and one output per class.

    Attributes:
      hidden: units of each hidden layer (relu).
      output: activation of the last layer. Keras' cross-entropy divides the outputs by their sum, also with "sigmoid".
    """

    hidden: tuple[int, ...]
    output: str = "softmax"

    def build(self, classes: int) -> Any:
        """See `Network.build`."""
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
