"""The networks by their layers: convolution and pooling, dense layers, tokenised text, the CIFAR-10 tutorial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from models.network import Network, check_classes, output_layer


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TextNet(Network):
    """An embedding, one convolution over the words, its largest response in the text, and a hidden layer.

    Attributes:
      words: tokens are 0 (padding) to words - 1.
      embedding: numbers a word.
      filters: of the convolution, three words wide; relu, padding "valid".
      dense: units of the hidden layer, relu.
      dropout: rate after the embedding and after the hidden layer.
    """

    words: int
    embedding: int
    filters: int
    dense: int
    dropout: float

    def build(self, classes: int) -> Any:
        """Builds the network, not compiled: one sigmoid output for two classes, else a softmax of all.

        Args:
          classes: at least 2.
        """
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
