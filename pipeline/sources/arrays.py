"""A source of images that are arrays in memory."""

from __future__ import annotations

import hashlib

import numpy as np

from unstall.pipeline.errors import SourceError
from unstall.pipeline.sources.source import ImageSource


def from_arrays(images: np.ndarray, labels: np.ndarray, *, class_names: tuple[str, ...] | None = None) -> ImageSource:
    """Returns a source of arrays in memory.

    Args:
      images: (images, height, width, 3) uint8.
      labels: (images,) or (images, 1) integers, 0 to classes - 1.
      class_names: one per class; by default "0", "1", ...
    Raises:
      SourceError: if the arrays have other shapes or types, or do not match.
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8 or not len(images):
        raise SourceError(
            "`images` must be a uint8 array of shape (images, height, width, 3). "
            f"Received: shape={images.shape}, dtype={images.dtype}."
        )
    labels = labels.reshape(-1)
    if len(labels) != len(images) or not np.issubdtype(labels.dtype, np.integer):
        raise SourceError(
            f"`labels` must be one integer per image ({len(images)}). Received: {len(labels)} of {labels.dtype}."
        )
    names = class_names or tuple(str(label) for label in range(int(labels.max()) + 1))
    if len(names) < 2 or labels.min() < 0 or labels.max() >= len(names):
        raise SourceError(
            f"`labels` must lie in 0 to classes - 1, of at least 2 classes. "
            f"Received: {len(names)} classes, labels {labels.min()} to {labels.max()}."
        )
    digest = hashlib.sha256(np.ascontiguousarray(images).reshape(-1).data)  # takes no copy of the pixels
    digest.update(labels.astype(np.int64).tobytes() + repr((images.shape, names)).encode())
    return ImageSource(
        kind="arrays",
        name="arrays",
        class_names=tuple(names),
        labels=labels.astype(np.int64),
        fingerprint=digest.hexdigest()[:16],
        arrays=images,
    )
