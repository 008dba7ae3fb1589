"""The first stages of a tf.data pipeline: in which order images are read, and how, from files or a prepared copy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipeline import stages
from pipeline.config import CALL_BYTES, PipelineConfig
from pipeline.epochs import maps_of
from pipeline.sources import ImageSource
from pipeline.stored import MappedImages, Records

# Shards that are read at the same time.
_SHARDS_AT_ONCE = 16


def read(source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Yields `(image, label)`, or batches of them where `yields_batches`; images are float32 in [0, 255]."""
    if source.records is not None and source.records.whole and config.shuffle_buffer:
        return _streamed(source, config, _shards(source.records, config))
    return load(order(source, config), source, config)


def yields_batches(source: ImageSource, config: PipelineConfig) -> bool:
    """Whether whole batches are read at once: from a mapped file, unless a stage behind it wants single images."""
    by_image = config.augmentation is not None and config.augment_at == "element"
    return isinstance(source.arrays, MappedImages) and not by_image and config.cache != "memory"


def order(source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Yields the index of each image once an epoch, as `stages.indices` does; of a large file in windows of blocks."""
    mapped = source.arrays
    if not isinstance(mapped, MappedImages) or not config.shuffle_buffer or mapped.fits_in_memory:
        return stages.indices(source.images, config)
    epochs = itertools.count()

    def windows() -> Iterator[np.ndarray]:
        return mapped.read_ahead(mapped.block_windows(seed=config.seed, epoch=next(epochs)))

    dataset = tf.data.Dataset.from_generator(windows, output_signature=tf.TensorSpec((None,), tf.int64)).unbatch()
    return dataset.apply(tf.data.experimental.assert_cardinality(source.images))


def composed_batches(source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Yields `(images, labels)` in batches, each image drawn from its decoded pixels by one map: images are uint8."""
    batches = batches_per_call(source, config)
    several = replace(config, batch_size=batches * config.batch_size)
    dataset = stages.load_composed(planned_batches(source, several), source, several)
    if batches == 1:
        return dataset
    dataset = dataset.rebatch(config.batch_size)
    return dataset.apply(tf.data.experimental.assert_cardinality(-(-source.images // config.batch_size)))


def batches_per_call(source: ImageSource, config: PipelineConfig) -> int:
    """Returns how many batches one call of Python makes: several, where it composes small images that need no decoding.

    For those, what tf.data does around a call, and Python's lock between two, take longer than the images themselves.
    An epoch has two calls at least.
    """
    if not config.composed or source.arrays is None:
        return 1
    height, width = config.image_size
    batches = -(-source.images // config.batch_size)
    return max(1, min(CALL_BYTES // (config.batch_size * height * width * 3), batches // 2))


def planned_batches(source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Yields an epoch's order and draws, as `stages.planned_batches` does; of a large file in windows of blocks."""
    mapped, size = source.arrays, config.batch_size
    if not isinstance(mapped, MappedImages) or not config.shuffle_buffer or mapped.fits_in_memory:
        return stages.planned_batches(source, config)
    epochs = itertools.count()

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        epoch, left, position = next(epochs), np.zeros(0, np.int64), 0
        matrices = maps_of(source.images, config, epoch)
        for window in mapped.read_ahead(mapped.block_windows(seed=config.seed, epoch=epoch)):
            left = np.concatenate([left, window])
            while len(left) >= size or (len(left) and position + len(left) == source.images):
                yield left[:size], matrices[position : position + size]
                left, position = left[size:], position + size

    spec = (tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None, 2, 3), tf.float32))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    return dataset.apply(tf.data.experimental.assert_cardinality(-(-source.images // size)))


def load(dataset: tf.data.Dataset, source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Turns indices into what `read` yields."""
    if isinstance(source.arrays, MappedImages):
        return _rows(dataset, source, source.arrays, config)
    if source.records is not None:
        return _by_offset(dataset, source, source.records, config)
    return stages.load(dataset, source, config)


def _rows(
    dataset: tf.data.Dataset, source: ImageSource, mapped: MappedImages, config: PipelineConfig
) -> tf.data.Dataset:
    """Python runs once a batch, and never sees more of the file than that."""
    labels = tf.constant(source.labels, tf.int32)

    def load_batch(indices: Any) -> tuple[Any, Any]:
        # Stateless: it draws nothing.
        images = tf.numpy_function(mapped.__getitem__, [indices], mapped.dtype, stateful=False)
        images.set_shape((None, *mapped.shape[1:]))
        return stages.resize(images, config), tf.gather(labels, indices)

    images = dataset.cardinality()
    dataset = stages.mapped(dataset.batch(config.batch_size), load_batch, config)
    if yields_batches(source, config):
        return dataset
    # `unbatch` forgets how many there are; `fit` would then begin an epoch too many to find out.
    return dataset.unbatch().apply(tf.data.experimental.assert_cardinality(images))


def _by_offset(
    dataset: tf.data.Dataset, source: ImageSource, records: Records, config: PipelineConfig
) -> tf.data.Dataset:
    labels = tf.constant(source.labels, tf.int32)

    def load_image(index: Any) -> tuple[Any, Any]:
        encoded = tf.ensure_shape(tf.numpy_function(records.__getitem__, [index], tf.string, stateful=False), ())
        return stages.resize(stages.decode(encoded, source, config), config), tf.gather(labels, index)

    return stages.mapped(dataset, load_image, config)


def _shards(records: Records, config: PipelineConfig) -> tf.data.Dataset:
    """Yields the serialized records: shards in another order each epoch, 16 at a time, through the shuffle buffer.

    In front of a cache the order is that in which they lie, a random one.
    """
    shards = tf.data.Dataset.from_tensor_slices([str(path) for path in records.paths])
    if config.cache == "memory":
        return tf.data.TFRecordDataset(shards)
    shards = shards.shuffle(len(records.paths), seed=config.seed, reshuffle_each_iteration=True)
    dataset = shards.interleave(tf.data.TFRecordDataset, cycle_length=_SHARDS_AT_ONCE)
    return dataset.shuffle(config.shuffle_buffer, seed=config.seed, reshuffle_each_iteration=True)


def _streamed(source: ImageSource, config: PipelineConfig, serialized: tf.data.Dataset) -> tf.data.Dataset:
    features = {key: tf.io.FixedLenFeature((), kind) for key, kind in FEATURES.items()}

    def load_image(one: Any) -> tuple[Any, Any]:
        parsed = tf.io.parse_single_example(one, features)
        image = stages.resize(stages.decode(parsed["image/encoded"], source, config), config)
        return image, tf.cast(parsed["image/class/label"], tf.int32)

    serialized = serialized.apply(tf.data.experimental.assert_cardinality(source.images))
    return stages.mapped(serialized, load_image, config)


# Of a record, named as TensorFlow's own image records are (tensorflow/models, research/slim).
FEATURES = {"image/encoded": tf.string, "image/class/label": tf.int64, "image/filename": tf.string}
