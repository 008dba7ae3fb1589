"""Looks at batches from outside: how many images they have, which come first, whether `fit` can read them again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from profiles.unit import Unit, unit_of

# Size of the batches that are held in host memory for `replay`: at least one batch, and no further one beyond this.
REPLAY_BYTES = 256 * 2**20


def batch_images(batch: Any) -> int:
    """Returns the number of images in a batch: the length of its first array. Images are counted nowhere else."""
    images = batch[0] if isinstance(batch, (tuple, list)) else batch
    while isinstance(images, (dict, tuple, list)):
        images = next(iter(images.values())) if isinstance(images, dict) else images[0]
    return int(images.shape[0])


def unit_in(batch: Any) -> Unit:
    """Returns what a batch holds, or each batch of an `element_spec`: images or other samples."""
    inputs = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        inputs = tf.nest.flatten(inputs, expand_composites=True)  # a batch for several devices has a part for each
    return unit_of(inputs, channels_axis=-1 if keras.config.image_data_format() == "channels_last" else 1)


def is_fit_data(data: Any) -> bool:
    """Whether `fit` itself can read the data again in each epoch: a tf.data.Dataset or a PyDataset."""
    return isinstance(data, keras.utils.PyDataset) or hasattr(data, "element_spec")


def first_batches(data: Any, limit_bytes: int = REPLAY_BYTES) -> list[Any]:
    """Returns the first batches of an epoch: at least one, and no further one once they exceed `limit_bytes`.

    Raises:
      ValueError: if there is no batch, a batch is not a pair, the data never ends, or can be read only once.
    """
    if _is_read_once(data):
        raise ValueError(
            f"The data must be one that can be read again and again. Received: {type(data).__name__}, which can be "
            "read once. Give a function that returns it."
        )
    if isinstance(data, keras.utils.PyDataset) and data.num_batches is None:
        raise ValueError("The data must be finite. Received: a PyDataset whose `num_batches` is None.")
    if hasattr(data, "cardinality") and int(data.cardinality()) == -1:
        raise ValueError("The data must be finite. Received a tf.data.Dataset that repeats for ever: drop .repeat().")
    batches: list[Any] = []
    total_bytes = 0
    for batch in by_hand(data):
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            received = type(batch).__name__
            received += f" of {len(batch)}; sample weights are not supported" if received in ("tuple", "list") else ""
            raise ValueError(f"A batch must be (images, labels). Received: {received}.")
        batches.append(tuple(batch))
        total_bytes += sum(np.asarray(part).nbytes for part in keras.tree.flatten(batch))
        if total_bytes >= limit_bytes:
            break
    if not batches:
        raise ValueError("The data has no batch.")
    return batches


def _is_read_once(data: Any) -> bool:
    """Whether the data is an iterator, which can be read once. Keras' old generators have `__next__` but are none."""
    return isinstance(data, Iterator) and not isinstance(data, keras.utils.PyDataset)


def by_hand(data: Any) -> Iterator[Any]:
    """Yields the batches of one epoch without calling `fit`, and without the workers of a PyDataset."""
    if isinstance(data, keras.utils.PyDataset):  # by index: iterating over Keras' old generators never ends
        return (data[index] for index in range(data.num_batches))
    return iter(data() if callable(data) and not hasattr(data, "element_spec") else data)
