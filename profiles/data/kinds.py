"""Kinds of data that a model is fed with."""

from __future__ import annotations

from enum import StrEnum


class DataKind(StrEnum):
    """What batches come from."""

    TF_DATA = "tf_data"  # a `tf.data.Dataset`
    DATA_LOADER = "data_loader"  # of PyTorch
    PY_DATASET = "py_dataset"  # of Keras, its iterators of images excepted
    IMAGE_ITERATOR = "image_iterator"  # of Keras' old `ImageDataGenerator`
    ARRAYS = "arrays"  # an array, or arrays in a structure
    GENERATOR = "generator"  # of Python
    GRAIN = "grain"  # a loader or dataset of Grain
    OTHER = "other"
