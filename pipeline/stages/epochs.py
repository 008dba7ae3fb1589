"""Computes an epoch's order and its draws from the seed and the epoch's number alone, for all of our loaders.

With NumPy, so that loaders without TensorFlow can use this module; `order.py` makes tf.data stages of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unstall.pipeline.config import LONG_EPOCH, PipelineConfig
from unstall.pipeline.draws import LongOrder, drawn, epoch_order
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.sources.stored import MappedImages

# Returns the images at some places of an epoch: takes and returns (places,) int64.
Order = Callable[[NDArray[np.int64]], NDArray[np.int64]]

# How many images of an epoch are planned at a time. The first batch waits for the first of these parts.
PLANNED_AT_ONCE = 1 << 13


def read_in_windows(source: ImageSource, config: PipelineConfig) -> MappedImages | None:
    """Returns the pixels that are shuffled in windows of blocks, as they lie in a file too large for the memory.

    None if the images are shuffled one by one, or not at all.
    """
    mapped = source.arrays
    if isinstance(mapped, MappedImages) and not mapped.fits_in_memory and config.shuffle_buffer:
        return mapped
    return None


def orders_of(source: ImageSource, config: PipelineConfig) -> Callable[[int], Order]:
    """Returns a function of an epoch's number, `order_of`, that keeps two orders: epochs overlap where one ends."""
    return functools.lru_cache(maxsize=2)(functools.partial(order_of, source, config))


def order_of(source: ImageSource, config: PipelineConfig, epoch: int) -> Order:
    """Returns the order of one epoch, a function from places to images.

    Images in a file that is too large for the memory come in the order of the windows in which the file is read.
    """
    if not config.shuffle_buffer:
        return np.asarray  # the image at each place has the place's number
    if (mapped := read_in_windows(source, config)) is not None:
        return np.concatenate(list(mapped.block_windows(seed=config.seed, epoch=epoch))).__getitem__
    if source.images > LONG_EPOCH:
        return LongOrder(source.images, seed=config.seed, epoch=epoch)
    return epoch_order(source.images, seed=config.seed, epoch=epoch).__getitem__


def maps_of(
    images: int, config: PipelineConfig, epoch: int, rows: NDArray[np.int64] | None = None, first: int = 0
) -> NDArray[np.float32]:
    """Returns affine maps of one epoch, (images, 2, 3): random, or the identity if the config does not augment.

    Args:
      images, rows, first: as in `Augmentation.draw`.
    """
    if config.augmentation is None:
        return np.broadcast_to(np.eye(2, 3, dtype=np.float32), (images if rows is None else len(rows), 2, 3))
    draw = drawn(config.augmentation, images, seed=config.seed, epoch=epoch, rows=rows, first=first)
    return draw.affine(*config.image_size)
