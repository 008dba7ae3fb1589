"""The kinds of data that models are trained on."""

from __future__ import annotations

from enum import Enum


class DataKind(Enum):
    """A kind of data, by what reads it."""

    TF_DATA = "tf.data"
    DATA_LOADER = "PyTorch's DataLoader"
    PY_DATASET = "Keras' PyDataset"
    IMAGE_ITERATOR = "iterator of Keras' old ImageDataGenerator"
    ARRAYS = "arrays"
    GENERATOR = "generator"
    GRAIN = "Grain"
    OTHER = "other"
