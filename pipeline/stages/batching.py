"""How many images a tf.data pipeline reads or makes at once. Needs no TensorFlow, for whoever only writes a script."""

from __future__ import annotations

from pipeline.config import AUTO, PipelineConfig
from pipeline.sources.source import ImageSource
from pipeline.sources.stored import MappedImages

# The largest size of the images that a call of Python makes, where another call begins before the first one ends; and
# where calls are made one at a time, so that a larger call stalls the loader: its buffer of two batches is empty before
# the call ends.
_CALL_BYTES, _ONE_CALL_BYTES = 6 << 20, 1 << 20
# All calls that run at once make at most this part of an epoch, if they make several batches: the first batch of an
# epoch waits for a whole call, and what the others hand over at once shows no steady rate.
_AT_ONCE_RATIO = 1 / 8


def yields_batches(source: ImageSource, config: PipelineConfig) -> bool:
    """Whether whole batches are read at once: from a mapped file, unless a later stage needs single images."""
    by_image = config.augmentation is not None and config.augment_at == "element"
    return isinstance(source.arrays, MappedImages) and not by_image and config.cache != "memory"


def batches_per_call(source: ImageSource, config: PipelineConfig) -> int:
    """Returns how many batches one Python call makes: several, where it composes small images that need no decoding.

    For such images tf.data's work around a call, and waiting for Python's lock between two calls, take longer than the
    images themselves.
    """
    if not config.composed or source.arrays is None:
        return 1
    height, width = config.image_size
    batches = -(-source.images // config.batch_size)
    most = call_bytes(config) // (config.batch_size * height * width * 3)
    return max(1, min(most, int(batches * _AT_ONCE_RATIO / calls_at_once(config))))


def calls_at_once(config: PipelineConfig) -> int:
    """Returns how many calls of a map run at once, at most; AUTOTUNE seldom chooses more than 8."""
    return 8 if config.workers == AUTO else int(config.workers)


def call_bytes(config: PipelineConfig) -> int:
    """Returns the largest size of the images of a call that makes several batches."""
    return _ONE_CALL_BYTES if config.workers == 1 else _CALL_BYTES
