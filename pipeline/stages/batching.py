"""How many images a tf.data pipeline reads or makes at once. Needs no TensorFlow, for whoever only writes a script."""

from __future__ import annotations

from pipeline.config import CALL_BYTES, PipelineConfig
from pipeline.sources.source import ImageSource
from pipeline.sources.stored import MappedImages


def yields_batches(source: ImageSource, config: PipelineConfig) -> bool:
    """Whether whole batches are read at once: from a mapped file, unless a later stage needs single images."""
    by_image = config.augmentation is not None and config.augment_at == "element"
    return isinstance(source.arrays, MappedImages) and not by_image and config.cache != "memory"


def batches_per_call(source: ImageSource, config: PipelineConfig) -> int:
    """Returns how many batches one Python call makes: several, where it composes small images that need no decoding.

    For such images tf.data's work around a call, and waiting for Python's lock between two calls, take longer than the
    images themselves. An epoch has at least two calls.
    """
    if not config.composed or source.arrays is None:
        return 1
    height, width = config.image_size
    batches = -(-source.images // config.batch_size)
    return max(1, min(CALL_BYTES // (config.batch_size * height * width * 3), batches // 2))
