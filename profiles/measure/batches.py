"""Looks at batches from outside: how many images they have, which come first, whether `fit` can read them again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unstall.profiles.data import adapter
from unstall.profiles.unit import Unit, unit_of

# Size of the batches that are held in host memory for `replay`: at least one batch, and no further one beyond this.
REPLAY_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class FitData:
    """Data as `fit` takes them, with what else `fit` is told of them.

    Attributes:
      arguments: of `fit`: `x`, and any of `y`, `sample_weight`, `batch_size`, `shuffle`, `steps_per_epoch`.
    """

    arguments: Mapping[str, Any]


def batch_images(batch: Any) -> int:
    """Returns the number of images in a batch: the length of its first array. Images are counted nowhere else."""
    return int(first_array(batch).shape[0])


def first_array(batch: Any) -> Any:
    """Returns the first array of a batch: its images, or its first input where a model has several."""
    while isinstance(batch, (dict, tuple, list)):
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return batch


def unit_in(batch: Any) -> Unit:
    """Returns what a batch holds, or each batch of which only the shapes are given: images or other samples."""
    import keras

    inputs = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        inputs = tf.nest.flatten(inputs, expand_composites=True)  # a batch for several devices has a part for each
    return unit_of(inputs, channels_axis=-1 if keras.config.image_data_format() == "channels_last" else 1)


def is_fit_data(data: Any) -> bool:
    """Whether `fit` itself can read the data again in each epoch: a tf.data.Dataset, a PyDataset, a `FitData`."""
    return isinstance(data, FitData) or adapter(data).fits


def first_batches(data: Any, limit_bytes: int = REPLAY_BYTES) -> list[Any]:
    """Returns the first batches of an epoch: at least one, and no further one once they exceed `limit_bytes`.

    Raises:
      ValueError: if there is no batch, a batch is no array, the data never ends, or can be read only once.
    """
    import keras

    adapter(data).check_read_again(data)
    batches: list[Any] = []
    total_bytes = 0
    for batch in by_hand(data):
        arrays = [part for part in keras.tree.flatten(batch) if part is not None]
        if not arrays or not all(hasattr(part, "shape") for part in arrays):
            received = ", ".join(dict.fromkeys(type(part).__name__ for part in arrays)) or "nothing"
            raise ValueError(
                "A batch must hold arrays: images, (images,), (images, labels) or (images, labels, weights). "
                f"Received: {received}."
            )
        batches.append(batch)
        total_bytes += sum(np.asarray(part).nbytes for part in arrays)
        if total_bytes >= limit_bytes:
            break
    if not batches:
        raise ValueError("The data has no batch.")
    return batches


def by_hand(data: Any) -> Iterator[Any]:
    """Yields the batches of one epoch without calling `fit`, and without the workers of a PyDataset.

    The batches have the structure that a train step gets of them in `fit`.
    """
    return adapter(data).by_hand(data)


def weighed(batch: Any, class_weight: Mapping[int, float] | None) -> Any:
    """Returns a batch of (images, labels) with the weights of its images, as `fit` makes them of `class_weight`.

    Args:
      class_weight: weights by class; None leaves the batch as it is. Classes that it lacks weigh 1.
    Raises:
      ValueError: if the batch has not one array of labels, or has weights already.
    """
    if class_weight is None:
        return batch
    if not isinstance(batch, tuple) or len(batch) != 2 or isinstance(batch[1], (dict, list, tuple)):
        received = f"a {type(batch).__name__} of {len(batch)}"
        raise ValueError(f"`class_weight` needs batches of (images, labels), labels one array. Received: {received}.")
    images, labels = batch
    classes = np.asarray(labels)
    if classes.ndim > 1:
        classes = classes.argmax(axis=-1) if classes.shape[-1] > 1 else classes.squeeze(axis=-1)
    weights = [class_weight.get(int(label), 1.0) for label in classes.round()]
    return images, labels, np.array(weights, np.float32)
