"""How many images a watched `fit` has had: counted in a batch, or told by tf.data or Keras where nobody sees one."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from profiles.measure.batches import batch_images
from profiles.script.epochs import Told


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
    """Returns the bytes of one tensor of a batch; 0 where they cannot be known."""
    try:
        return int(np.prod(part.shape)) * np.dtype(keras.backend.standardize_dtype(part.dtype)).itemsize
    except (AttributeError, TypeError, ValueError):
        return 0


def told_of(iterator: Any, steps: int, expected_steps: int | None) -> Told:
    """Returns what tf.data counted since the iterator was made.

    Args:
      steps: that were made at most: the last call may have found fewer.
      expected_steps: of an epoch, where Keras knows it.
    """
    import tensorflow as tf

    try:
        model = tf.data.experimental.get_model_proto(iterator)
    except (tf.errors.OpError, ValueError, AttributeError, TypeError):
        known = min(steps, expected_steps) if expected_steps else None
        size = _static_batch(iterator)
        return Told(steps=known or steps, images=known * size if known and size else None)
    node = model.nodes[model.output]
    images = _images_of(iterator, node.num_elements, node.bytes_produced)
    return Told(steps=node.num_elements, images=images)


def _images_of(iterator: Any, elements: int, size_bytes: int) -> int | None:
    """Returns the images in so many batches: by their size in bytes where one image's is known."""
    fixed = _static_batch(iterator)
    if fixed is not None:
        return elements * fixed
    image_bytes = 0
    for spec in keras.tree.flatten(iterator.element_spec):
        shape = getattr(spec, "shape", None)
        if shape is None or not shape.rank or None in shape[1:].as_list() or not spec.dtype.size:
            return None
        image_bytes += int(np.prod(shape[1:].as_list())) * spec.dtype.size
    images, rest = divmod(size_bytes, image_bytes or 1)
    return images if not rest else None


def _static_batch(iterator: Any) -> int | None:
    """Returns the images of every batch where the pipeline promises a number."""
    try:
        return keras.tree.flatten(iterator.element_spec)[0].shape[0]
    except (AttributeError, IndexError, ValueError, TypeError):
        return None
