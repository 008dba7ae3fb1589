"""How many images a tf.data pipeline reads or makes at once. Needs no TensorFlow, for whoever only writes a script."""

from __future__ import annotations

from unstall.pipeline.config import AUTO, PipelineConfig
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.sources.stored import MappedImages

# The largest size of the images of a call that makes several batches, where calls run beside each other. On two cores,
# 64x64 pixels had about 1.3 times the images/sec of calls of 1 MiB; larger calls had no more.
_CALL_BYTES = 6 << 20
# The same where calls are made one at a time. With 2 MiB the buffer of two batches was empty before a call ended.
_ONE_CALL_BYTES = 1 << 20
# Calls that run at once make at most this part of an epoch. The first batch of an epoch waits for a whole call; and
# calls that end together hand over all their batches at once, so that a short epoch would have no steady rate.
_AT_ONCE_RATIO = 1 / 8
# The same of a part of the data that is measured in the place of the whole.
_AT_ONCE_OF_A_PART_RATIO = 1 / 2


def yields_batches(source: ImageSource, config: PipelineConfig) -> bool:
    """Whether whole batches are read at once: from a mapped file, unless a later stage needs single images."""
    by_image = config.augmentation is not None and config.augment_at == "element"
    return isinstance(source.arrays, MappedImages) and not by_image and config.cache != "memory"


def batches_per_call(source: ImageSource, config: PipelineConfig, whole_images: int | None = None) -> int:
    """Returns how many batches one Python call makes: several, where it composes small images that need no decoding.

    For such images tf.data's work around a call, and waiting for Python's lock between two calls, take longer than the
    images themselves.

    Args:
      whole_images: images of the whole, of which `source` is a part; None where it is the whole. A part is read as the
        whole would be, so that it shows the whole's rate.
    """
    if not config.composed or source.arrays is None:
        return 1
    batches, whole_batches = (
        -(-images // config.batch_size) for images in (source.images, whole_images or source.images)
    )
    at_once = min(whole_batches * _AT_ONCE_RATIO, batches * _AT_ONCE_OF_A_PART_RATIO)
    most = _call_bytes(config) // (config.batch_size * _image_bytes(config))
    return max(1, min(most, int(at_once / calls_at_once(config))))


def calls_at_once(config: PipelineConfig) -> int:
    """Returns how many calls of a map are expected at once: for AUTO 8, since AUTOTUNE seldom chooses more."""
    return 8 if config.workers == AUTO else int(config.workers)


def most_call_bytes(config: PipelineConfig, images: int) -> int:
    """Returns the most bytes that the calls which run at once make, if they make several batches.

    Args:
      images: of an epoch.
    """
    return min(calls_at_once(config) * _call_bytes(config), int(images * _image_bytes(config) * _AT_ONCE_RATIO))


def _image_bytes(config: PipelineConfig) -> int:
    height, width = config.image_size
    return height * width * 3


def _call_bytes(config: PipelineConfig) -> int:
    return _ONE_CALL_BYTES if config.workers in (1, AUTO) else _CALL_BYTES
