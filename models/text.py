"""Networks that classify tokenised text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from models.network import Network, check_classes, output_layer


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
