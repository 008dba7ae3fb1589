"""What an epoch is: its order and its draws, from the seed and the epoch's number alone, for every loader of ours.

In NumPy: a loop in Python needs no TensorFlow. `order` makes tf.data of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.augmentation import epoch_order
from pipeline.config import PipelineConfig
from pipeline.sources.source import ImageSource
from pipeline.sources.stored import MappedImages


def order_of(source: ImageSource, config: PipelineConfig, epoch: int) -> NDArray[np.int64]:
    """Returns the images of one epoch in their order; of a file that memory cannot hold, in that of its windows."""
    if not config.shuffle_buffer:
        return np.arange(source.images)
    mapped = source.arrays
    if isinstance(mapped, MappedImages) and not mapped.fits_in_memory:
        return np.concatenate(list(mapped.block_windows(seed=config.seed, epoch=epoch)))
    return epoch_order(source.images, seed=config.seed, epoch=epoch)


def maps_of(
    images: int, config: PipelineConfig, epoch: int, rows: NDArray[np.int64] | None = None
) -> NDArray[np.float32]:
    """Returns the affine maps that one epoch draws, (images, 2, 3), or some of them; with an augmentation only."""
    assert config.augmentation is not None
    return config.augmentation.draw(images, seed=config.seed, epoch=epoch, rows=rows).affine(*config.image_size)
