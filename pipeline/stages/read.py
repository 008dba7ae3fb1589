"""The stages of a tf.data pipeline that read images from files, arrays or a prepared copy, decode and resize them.

They turn elements that are an `index` into `(image, label)`, or into batches of these. Images are in [0, 255] until
`output.rescale`: float32, or uint8 from `composed_loader`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.sources.names import END, GROUP_NAMES
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.sources.stored import MappedImages, Records
from unstall.pipeline.stages import output
from unstall.pipeline.stages.batching import batches_per_call, yields_batches
from unstall.pipeline.stages.order import order, planned_batches
from unstall.pipeline.stages.output import mapped


def _by_index(dataset: tf.data.Dataset, source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Turns an index into `(image, label)`: reads, decodes and resizes."""
    labels = tf.constant(source.labels, tf.int32)
    if source.arrays is not None:
        arrays = tf.constant(source.arrays)

        def load_image(index: Any) -> tuple[Any, Any]:
            return resize(tf.gather(arrays, index), config), tf.gather(labels, index)

    else:
        path_of = paths_of(source)

        def load_image(index: Any) -> tuple[Any, Any]:
            encoded = tf.io.read_file(path_of(index))
            return resize(decode(encoded, source.formats, config), config), tf.gather(labels, index)

    return mapped(dataset, load_image, config)


def paths_of(source: ImageSource) -> Callable[[Any], Any]:
    """Returns a function that turns an index, an int64 tensor, into the path of a file, a string tensor.

    It cuts the name out of a string of several names: TensorFlow takes some 130 bytes for each string of a tensor.
    """
    assert source.root is not None
    groups = tf.constant(list(source.files.groups()))
    folder = os.fsencode(os.path.join(source.root, ""))

    def path_of(index: Any) -> Any:
        names = tf.raw_ops.StringSplitV2(input=[groups[index // GROUP_NAMES]], sep=END).values
        return folder + names[index % GROUP_NAMES]

    return path_of


def composed_loader(source: ImageSource, config: PipelineConfig) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """Returns a function that makes `(images, labels)` of planned batches.

    The images are uint8, decoded, and resampled once together with their draw. Each element, of one batch or several,
    is one Python call, which spends nearly all of its time in OpenCV.
    """
    from unstall.pipeline.stages.compose import ComposedBatches  # imports OpenCV, which other pipelines do not need

    labels = tf.constant(source.labels, tf.int32)
    batches = ComposedBatches(source, config)

    def load_batch(indices: Any, matrices: Any) -> tuple[Any, Any]:
        images = tf.numpy_function(batches, [indices, matrices], tf.uint8, stateful=False)
        images.set_shape((None, *config.image_size, 3))
        return images, tf.gather(labels, indices)

    return lambda dataset: mapped(dataset, load_batch, config)


def decode(encoded: Any, formats: tuple[str, ...], config: PipelineConfig) -> Any:
    """Decodes one image to (height, width, 3) uint8, at a fraction of its size where the config says so.

    Args:
      formats: of the source's files.
    """
    if formats == ("JPEG",):
        if config.decode == "scaled":
            return decode_scaled(encoded, config.image_size)
        return tf.io.decode_jpeg(encoded, channels=3)
    # Not `channels=0`, which a WebP with transparency would need: of an animated one TensorFlow 2.21 then writes behind
    # its memory.
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    image.set_shape((None, None, 3))
    return image


def decode_scaled(encoded: Any, image_size: tuple[int, int]) -> Any:
    """Decodes a JPEG at the smallest of its full, 1/2, 1/4 and 1/8 size that is at least `image_size`.

    The size comes from the header. libjpeg rounds a scaled side up to ceil(side / ratio) pixels.
    """
    shape = tf.io.extract_jpeg_shape(encoded)
    height, width = image_size

    fits = [tf.logical_and((shape[0] + r - 1) // r >= height, (shape[1] + r - 1) // r >= width) for r in (2, 4, 8)]
    which = tf.reduce_sum(tf.cast(tf.stack(fits), tf.int32))
    branches = [
        lambda ratio=ratio: tf.io.decode_jpeg(
            encoded, channels=3, ratio=ratio, dct_method="INTEGER_FAST", fancy_upscaling=False
        )
        for ratio in (1, 2, 4, 8)
    ]
    return tf.switch_case(which, branches)


def resize(image: Any, config: PipelineConfig) -> Any:
    """Resizes to (height, width, 3) float32 in [0, 255]."""
    return tf.cast(tf.image.resize(image, config.image_size, method=config.interpolation), tf.float32)


# How many shards (files of records) are read at the same time.
_SHARDS_AT_ONCE = 16


def read(source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Yields `(image, label)`, or batches of them where `yields_batches`; images are float32 in [0, 255]."""
    if source.records is not None and source.records.whole and config.shuffle_buffer:
        return _streamed(source, config, _shards(source.records, config))
    return load(order(source, config), source, config)


def composed_stages(
    source: ImageSource, config: PipelineConfig, whole_images: int
) -> tuple[tf.data.Dataset, Callable[[tf.data.Dataset], tf.data.Dataset]]:
    """Returns the plan of an epoch, and a function that makes batches of `(images, labels)` of it.

    The function also takes the plans of several epochs, one after the other. Each uint8 image is resampled once, by one
    map of its decoded pixels.

    Args:
      whole_images: images of the whole of which `source` is a part.
    """
    per_call, size = batches_per_call(source, config, whole_images), config.batch_size
    several = replace(config, batch_size=per_call * size)
    batches = -(-source.images // size)
    # The last batch of an epoch is short, wherever the images of a call end.
    sizes = [size] * (batches - 1) + [source.images - (batches - 1) * size]
    loaded = composed_loader(source, several)

    def batches_of(plans: tf.data.Dataset) -> tf.data.Dataset:
        if per_call == 1:
            return loaded(plans)
        # `rebatch` forgets how many batches there are.
        endless = bool(plans.cardinality() == tf.data.INFINITE_CARDINALITY)
        counted = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY if endless else batches)
        return loaded(plans).rebatch(sizes).apply(counted)

    return planned_batches(source, several), batches_of


def load(dataset: tf.data.Dataset, source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Turns indices into what `read` yields."""
    if isinstance(source.arrays, MappedImages):
        return _rows(dataset, source, source.arrays, config)
    if source.records is not None:
        return _by_offset(dataset, source, source.records, config)
    return _by_index(dataset, source, config)


def _rows(
    dataset: tf.data.Dataset, source: ImageSource, mapped: MappedImages, config: PipelineConfig
) -> tf.data.Dataset:
    """Reads from a mapped file: one Python call per batch, which touches only the batch's part of the file."""
    labels = tf.constant(source.labels, tf.int32)

    def load_batch(indices: Any) -> tuple[Any, Any]:
        # Stateless: the function makes no random draws.
        images = tf.numpy_function(mapped.__getitem__, [indices], mapped.dtype, stateful=False)
        images.set_shape((None, *mapped.shape[1:]))
        return resize(images, config), tf.gather(labels, indices)

    images = dataset.cardinality()
    dataset = output.mapped(dataset.batch(config.batch_size), load_batch, config)
    if yields_batches(source, config):
        return dataset
    # `unbatch` loses the cardinality; `fit` would then start an additional epoch to find out where the data ends.
    return dataset.unbatch().apply(tf.data.experimental.assert_cardinality(images))


def _by_offset(
    dataset: tf.data.Dataset, source: ImageSource, records: Records, config: PipelineConfig
) -> tf.data.Dataset:
    labels = tf.constant(source.labels, tf.int32)

    def load_image(index: Any) -> tuple[Any, Any]:
        encoded = tf.ensure_shape(tf.numpy_function(records.__getitem__, [index], tf.string, stateful=False), ())
        return resize(decode(encoded, source.formats, config), config), tf.gather(labels, index)

    return output.mapped(dataset, load_image, config)


def _shards(records: Records, config: PipelineConfig) -> tf.data.Dataset:
    """Yields the serialized records: shards in another order each epoch, 16 at a time, through the shuffle buffer.

    In front of a cache in memory the records come in the order in which they were written, which is random already.
    """
    shards = tf.data.Dataset.from_tensor_slices([str(path) for path in records.paths])
    if config.cache == "memory":
        return tf.data.TFRecordDataset(shards)
    shards = shards.shuffle(len(records.paths), seed=config.seed, reshuffle_each_iteration=True)
    dataset = shards.interleave(tf.data.TFRecordDataset, cycle_length=_SHARDS_AT_ONCE)
    return dataset.shuffle(config.shuffle_buffer, seed=config.seed, reshuffle_each_iteration=True)


def _streamed(source: ImageSource, config: PipelineConfig, records: tf.data.Dataset) -> tf.data.Dataset:
    features = {key: tf.io.FixedLenFeature((), kind) for key, kind in FEATURES.items()}

    def load_image(serialized: Any) -> tuple[Any, Any]:
        parsed = tf.io.parse_single_example(serialized, features)
        image = resize(decode(parsed["image/encoded"], source.formats, config), config)
        return image, tf.cast(parsed["image/class/label"], tf.int32)

    records = records.apply(tf.data.experimental.assert_cardinality(source.images))
    return output.mapped(records, load_image, config)


# The features of a record, with the names of TensorFlow's own image records (tensorflow/models, research/slim).
FEATURES = {"image/encoded": tf.string, "image/class/label": tf.int64, "image/filename": tf.string}
