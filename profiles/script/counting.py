"""Counts the images of a watched `fit`, in its batches or, where only TensorFlow draws these, by tf.data's counters."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from unstall.profiles.data.tf_iterators import spec_of
from unstall.profiles.measure.batches import batch_images
from unstall.profiles.measure.sums import IteratorCount


def images_in(batch: Any, model: Any) -> int | None:
    """Returns the images in a batch, over all devices; None where they cannot be counted."""
    try:
        first = batch
        while isinstance(first, (dict, tuple, list)):
            first = next(iter(first.values())) if isinstance(first, dict) else first[0]
        if keras.backend.backend() != "tensorflow":
            return batch_images(first)
        return sum(batch_images(part) for part in model.distribute_strategy.experimental_local_results(first))
    except (AttributeError, IndexError, TypeError, ValueError, StopIteration):
        return None


def size_bytes(part: Any) -> int:
    """Returns the bytes of one tensor of a batch; 0 where they are unknown."""
    try:
        return int(np.prod(part.shape)) * np.dtype(keras.backend.standardize_dtype(part.dtype)).itemsize
    except (AttributeError, TypeError, ValueError):
        return 0


def iterator_count(iterator: Any, steps: int, expected_steps: int | None, before: IteratorCount) -> IteratorCount:
    """Returns the batches and images of an epoch so far, as tf.data has counted them.

    Where tf.data does not count, they follow from the numbers of steps and a fixed batch size, if there is one.

    Args:
      iterator: that `fit` draws from.
      steps: upper limit of the steps so far: the last call of several steps may have found fewer batches.
      expected_steps: steps of an epoch, where Keras knows their number.
      before: what earlier epochs have drawn from this iterator, which tf.data counts as well.
    """
    import tensorflow as tf

    try:
        model = tf.data.experimental.get_model_proto(iterator)
    except (tf.errors.OpError, ValueError, AttributeError, TypeError):
        exact_steps = min(steps, expected_steps) if expected_steps else None
        size = _static_batch(iterator)
        return IteratorCount(steps=exact_steps or steps, images=exact_steps * size if exact_steps and size else None)
    node = model.nodes[model.output]
    images = _images_of(iterator, node.num_elements, node.bytes_produced)
    return IteratorCount(steps=node.num_elements, images=images) - before


def _images_of(iterator: Any, elements: int, size_bytes: int) -> int | None:
    """Returns the images in so many batches, by a fixed batch size or the bytes of an image; None without both."""
    batch_size = _static_batch(iterator)
    if batch_size is not None:
        return elements * batch_size
    image_bytes = 0
    for spec in keras.tree.flatten(spec_of(iterator)):
        shape = getattr(spec, "shape", None)
        if shape is None or not shape.rank or None in shape[1:].as_list() or not spec.dtype.size:
            return None
        image_bytes += int(np.prod(shape[1:].as_list())) * spec.dtype.size
    images, rest = divmod(size_bytes, image_bytes or 1)
    return images if not rest else None


def _static_batch(iterator: Any) -> int | None:
    """Returns the batch size where the pipeline fixes it, else None."""
    try:
        return keras.tree.flatten(spec_of(iterator))[0].shape[0]
    except (AttributeError, IndexError, ValueError, TypeError):
        return None
